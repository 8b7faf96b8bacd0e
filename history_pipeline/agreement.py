"""Whether an archive holds every run whose rows a database has deleted."""

from __future__ import annotations

from collections.abc import Sequence

from history_pipeline.archive_log import ArchiveLog
from history_pipeline.errors import ArchiveDamagedError
from history_pipeline.manifest import Manifest, manifest_path
from history_pipeline.storage import ReadableStorage
from sql.database import Database
from sql.families import ARCHIVES


def check_agreement(
    archive: ArchiveLog[ReadableStorage], manifests: Sequence[Manifest], database: Database
) -> None:
    """Raises ArchiveDamagedError if a run that `queue_archives` names lacks its manifest.

    It is raised for another manifest, too.

    Those count that were archived into this directory, or into one that it was copied from.
    """
    archives = database.dialect.statements_for(ARCHIVES)()
    entered = database.fetch(lambda connection: archives.entered(connection, archive.table))
    by_run = {manifest.run: manifest for manifest in manifests}
    places = {archive.where} | {row.target for row in entered if row.run in by_run}
    for row in entered:
        if row.target not in places:
            continue
        path = (
            f"{archive.where}/{manifest_path(row.manifest_number)}"
            if row.manifest_number
            else archive.where
        )
        if row.run not in by_run:
            problem = f"{path}: the manifest of run {row.run} is missing"
        elif row.manifest_sha256 and archive.digest(by_run[row.run].number) != row.manifest_sha256:
            problem = f"{path}: the manifest of run {row.run} is not the one that was published"
        else:
            continue
        raise ArchiveDamagedError(
            f"{problem}. The database has deleted the {row.entries} rows of that run ({row.first_id} to {row.last_id}). "
            "Nothing was read, written or removed. Bring the directory back from its newest copy.",
            path=path,
        )

"""Recovery of an archive: a run first mends the traces of a killed run or a loss.

Manifests whose files were lost are written anew from the log, and those that an earlier version has
published are entered in it. Bundles that are missing are written.
"""

from __future__ import annotations

from functools import partial

from history_pipeline.archives.agreement import Agreement, agreement
from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.bundles import write_bundles
from history_pipeline.archives.manifest import Manifest, live_files, manifest_path
from history_pipeline.archives.storage import Storage
from history_pipeline.errors import ArchiveConflictError, ArchiveDamagedError
from history_pipeline.upkeep.publication import logged_of
from sql.database import Database
from sql.families import ARCHIVES


def recovered(archive: ArchiveLog[Storage], database: Database) -> Agreement:
    """The state of an archive, once the manifests that were lost are written anew.

    Raises as `agreement`, and ArchiveDamagedError if the data of such a manifest is missing, too;
    nothing is written then.
    """
    found = agreement(archive, database)
    for number in found.lost:
        _check_data(archive, found.manifests, found.manifests[number - 1])
    for number, content in sorted(found.lost.items()):
        archive.storage.put(manifest_path(number), content)
    archives = database.dialect.statements_for(ARCHIVES)()
    for run in found.superseded:
        database.write(partial(archives.withdraw, run=run))
    write_bundles(archive, found.manifests)
    return found


def check_finished(archive: ArchiveLog[Storage], found: Agreement) -> None:
    """Raises ArchiveConflictError if a run is not in the log, or has rows left in history.

    Such rows are compared with the files, and would be archived once more without them.
    """
    unlogged = [one for one in found.manifests if not found.is_logged(one)]
    if unlogged or found.unfinished:
        [first, *_others] = unlogged + found.unfinished
        raise ArchiveConflictError(
            f"{archive.where}: run {first.run} is not finished, or of an earlier version. Nothing "
            "was changed. If an archive is under way, wait for its end. Else start `stickybus "
            "history archive` first, which finishes it.",
            path=archive.where,
        )


def take_over(archive: ArchiveLog[Storage], database: Database, found: Agreement) -> None:
    """Enter the manifests of earlier versions in the log, or complete the rows that they have."""
    archives = database.dialect.statements_for(ARCHIVES)()
    now = database.fetch(database.dialect.database_now)
    unlogged = [
        logged_of(archive, manifest, archive.storage.read(manifest.path), now)
        for manifest in found.manifests
        if not found.is_logged(manifest)
    ]
    for logged in unlogged:
        database.write(partial(archives.adopt, logged=logged))


def _check_data(archive: ArchiveLog[Storage], manifests: list[Manifest], lost: Manifest) -> None:
    """Raises ArchiveDamagedError unless the files of a lost manifest are there."""
    sizes = archive.storage.sizes(f"data/{lost.run}")
    live = {file.path for file in live_files(manifests)}
    for file in lost.files:
        if file.path in live and sizes.get(file.path) != file.size_bytes:
            raise ArchiveDamagedError(
                f"{archive.where} lacks the manifest and the data of run {lost.run}, which has "
                f"{lost.fingerprint.rows} rows: it seems to be an older copy. Missing: "
                f"{file.path}. Nothing was archived, written or removed. Bring the directory back "
                "from its newest copy. If its archive was moved away from here, name the "
                "directory where it is now, or another one for a new archive: this name stays "
                "that of the old one.",
                path=f"{archive.where}/{file.path}",
            )

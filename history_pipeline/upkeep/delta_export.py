"""A copy of an archive as a Delta table, for engines that want a table.

The archive's own folder gets no table format: a vacuum of one would delete the manifests there. So
the table has a directory of its own. It can be made anew at any time, and nothing here reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
from sqlalchemy import URL
from sqlalchemy import Engine as SqlalchemyEngine

from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.manifest import DataFile, Manifest, digest, live_files
from history_pipeline.archives.place import directory, folder
from history_pipeline.archives.verification import manifests_of, not_sound
from history_pipeline.errors import (
    ArchiveConflictError,
    ArchiveDamagedError,
    ArchiveNotFoundError,
    ArchiveTargetError,
)
from history_pipeline.progress import Progress, silent
from history_pipeline.rows.arrow_schema import schema_of
from history_pipeline.rows.columns import EVENT_DATE
from history_pipeline.rows.fingerprint import joined
from history_pipeline.rows.kind import kind_of
from queue_core.runtime.arguments import function

REPLACED_HOURS = 24
"""Hours that a file stays after it has left the table, for queries that still read it."""


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    `target` is the folder of the table, and `version` its newest version. `manifest` is the number
    of the archive's manifest up to which it goes, `files` and `entries` are all that it holds.
    `added` and `removed` count the files that came and went with this export.
    """

    table: str
    target: str
    version: int
    manifest: int
    files: int
    entries: int
    added: int
    removed: int


def export_delta(
    source: str,
    target: str,
    *,
    table: str = "bus_events",
    database: str | URL | SqlalchemyEngine | None = None,
    progress: Progress = silent,
) -> Exported:
    """Copy an archive's rows to a Delta table, or bring the table up to date.

    Files are copied as they are, after their SHA-256 was compared, and the table takes all changes
    in one commit: what was archived since, and what a compaction, an expiry or an erasure has
    replaced. Replaced files stay for `REPLACED_HOURS`; the next export after that deletes them. A
    column `event_date`, the day (UTC) on which an entry ended, partitions the table.

    It needs neither Spark nor Java, only the extra `delta`. The table's format is Delta Lake's
    protocol, versions 1 for readers and 2 for writers, by the package `deltalake`.

    Args:
        source: The directory of the archive.
        target: The directory for tables, local or in object storage; each has a folder there.
        table: The main table whose history was archived, or `work_task_history`. Default:
            `bus_events`.
        database: The database that was archived. Only it shows whether the newest manifests are
            there.
        progress: Called with the name of the step, the files copied so far, and all new files.

    Returns:
        The table's version and counts.

    Raises:
        ConfigurationError: An argument is not allowed.
        ArchiveNotFoundError: Nothing was archived there.
        ArchiveDamagedError: A file or manifest is missing or changed. The table is as it was.
        ArchiveConflictError: The folder holds something else than the archive's table, or the
            state of a newer copy of the archive, or another export has written there meanwhile.
        ArchiveTargetError: A directory can't be reached or written to.
        StickybusError: The database can't be opened.
    """
    directory(source, key="source")
    function(progress, key="progress", arguments=3)
    archive = ArchiveLog(ArrowStorage(folder(source, table)), table)
    manifests, lost = manifests_of(archive, database)
    if lost:
        raise ArchiveDamagedError(
            f"{archive.where}/{lost[0]} is missing, though the database has it. Nothing was "
            "written. The next `stickybus history archive` writes it anew.",
            path=f"{archive.where}/{lost[0]}",
        )
    if not manifests:
        raise ArchiveNotFoundError(
            f"nothing was archived to {archive.where} yet. Nothing was written. Export it after "
            "`stickybus history archive` has moved rows there.",
            path=archive.where,
        )
    return _Export(archive, ArrowStorage(folder(target, table)), manifests).run(progress)


class _Export:
    """One export: from the files of some manifests to the folder of a table."""

    def __init__(
        self, archive: ArchiveLog[ArrowStorage], target: ArrowStorage, manifests: list[Manifest]
    ) -> None:
        self._archive = archive
        self._target = target
        self._last = manifests[-1]
        self._live = {file.path: file for file in live_files(manifests)}
        self._schema = Schema.from_arrow(
            schema_of(kind_of(archive.table).columns).append(pa.field(EVENT_DATE, pa.date32()))
        )

    def run(self, progress: Progress) -> Exported:
        try:
            found = self._found()
            there = _files(found) if found else {}
            added = [file for path, file in self._live.items() if path not in there]
            gone = {path: size for path, size in there.items() if path not in self._live}
            for number, file in enumerate(added):
                progress("copying files", number, len(added))
                self._copy(file)
            progress("copying files", len(added), len(added))
            self._commit(found, added, gone)
            written = DeltaTable(self._target.url)
            written.vacuum(REPLACED_HOURS, dry_run=False, enforce_retention_duration=False)
        except CommitFailedError as error:
            raise ArchiveConflictError(
                f"another export has written to {self._target.root} meanwhile: {error}. Nothing "
                "was committed. Start the export again.",
                path=self._target.root,
            ) from error
        except (DeltaError, OSError) as error:
            raise ArchiveTargetError(
                f"the Delta table in {self._target.root} can't be read or written: {error}. "
                "What was copied stays. Start the export again.",
                target=self._target.root,
            ) from error
        return Exported(
            table=self._archive.table,
            target=self._target.root,
            version=written.version(),
            manifest=self._last.number,
            files=len(self._live),
            entries=joined([file.fingerprint for file in self._live.values()]).rows,
            added=len(added),
            removed=len(gone),
        )

    @property
    def _name(self) -> str:
        """The archive's name in the table's log: each commit tells up to which manifest it goes."""
        return f"stickybus:{self._last.archive}"

    def _found(self) -> DeltaTable | None:
        """The table, if it was begun. Raises ArchiveConflictError."""
        url, where = self._target.url, self._target.root
        try:
            found = DeltaTable(url)
        except TableNotFoundError:
            # `data` alone is what an export has left that was killed before its commit.
            if set(self._target.names("")) - {"data"}:
                raise ArchiveConflictError(
                    f"{where} holds other files, and no Delta table. Nothing was written. Name "
                    "a directory for tables alone; the archive's own can't be it.",
                    path=where,
                ) from None
            return None
        exported = found.transaction_version(self._name)
        if exported is None:
            raise ArchiveConflictError(
                f"{where} holds a Delta table that was not made from archive "
                f"{self._last.archive}. Nothing was written. Name another directory.",
                path=where,
            )
        if exported > self._last.number:
            raise ArchiveConflictError(
                f"{where} was made up to manifest {exported}, and the archive in "
                f"{self._archive.where} ends with {self._last.number}: it is an older copy. "
                "Nothing was written.",
                path=where,
            )
        return found

    def _copy(self, file: DataFile) -> None:
        """Copy one file, and nothing if it is not what its manifest says."""
        try:
            content = self._archive.storage.read(file.path)
        except FileNotFoundError as error:
            raise not_sound(self._archive.storage, file) from error
        if len(content) != file.size_bytes or file.sha256 not in {None, digest(content)}:
            raise not_sound(self._archive.storage, file)
        self._target.put(file.path, content)

    def _commit(
        self, found: DeltaTable | None, added: list[DataFile], gone: dict[str, int]
    ) -> None:
        """Commit what came and went, all at once; nothing if there is nothing new."""
        now = int(datetime.now(UTC).timestamp() * 1000)
        adds = [_add(file, now) for file in added]
        said = CommitProperties(
            app_transactions=[Transaction(self._name, self._last.number, now)],
            custom_metadata={"manifest": str(self._last.number), "run": self._last.run},
        )
        if found is None:
            create_table_with_add_actions(
                self._target.url,
                self._schema,
                adds,
                partition_by=[EVENT_DATE],
                name=self._archive.table,
                description="Made by stickybus history export. Its files are copies.",
                commit_properties=said,
            )
            return
        known = {field.name for field in found.schema().fields}
        if new := [field for field in self._schema.fields if field.name not in known]:
            found.alter.add_columns(new)
        if found.transaction_version(self._name) != self._last.number:
            removes = [
                RemoveAction(path, data_change=True, deletion_timestamp=now, size=size)
                for path, size in gone.items()
            ]
            found.create_write_transaction(
                [*adds, *removes], "append", self._schema, [EVENT_DATE], commit_properties=said
            )


def _files(table: DeltaTable) -> dict[str, int]:
    """The sizes of a table's files in bytes, by their paths."""
    actions = pa.table(table.get_add_actions())
    return dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))


def _add(file: DataFile, now: int) -> AddAction:
    """A file as the table's log names it; `now` is in milliseconds since 1970, UTC."""
    stats = {
        "numRecords": file.fingerprint.rows,
        "minValues": {"record_id": file.first_id},
        "maxValues": {"record_id": file.last_id},
    }
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values={EVENT_DATE: file.event_date},
        modification_time=now,
        data_change=True,
        stats=msgspec.json.encode(stats).decode(),
    )

"""Erasure: rows of an archive lose what they say of a customer, and keep their place.

The files that hold them are rewritten by Arrow. A manifest adds the new files, names the old ones
as replaced, and says which rows differ, with their fingerprints before and after: so all the other
rows are proved to be the same. The old files are removed at once, and so are all others that may
hold the same rows. If the erasure is killed before its manifest is published, nothing has changed.
If it is killed later, the next one, or whoever archives, compacts or expires next, removes these
files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from posixpath import basename, dirname
from typing import NamedTuple

from msgspec import structs
from sqlalchemy import URL
from sqlalchemy import Engine as SqlalchemyEngine

from history_pipeline.archives.agreement import agreement
from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.database import opened_for
from history_pipeline.archives.manifest import (
    DataFile,
    Erasure,
    Kind,
    Manifest,
    live_files,
    new_run,
    replacing,
)
from history_pipeline.archives.parquet_files import named, parquet_file
from history_pipeline.archives.place import folder
from history_pipeline.archives.search import SoughtRows
from history_pipeline.archives.sought import Sought
from history_pipeline.rows.arrow_schema import schema_of
from history_pipeline.rows.fingerprint import joined
from history_pipeline.rows.kind import check_entries, kind_of
from history_pipeline.upkeep.files_lock import files_lock
from history_pipeline.upkeep.history_lock import history_lock
from history_pipeline.upkeep.leftovers import remove_leftovers
from history_pipeline.upkeep.publication import publish
from history_pipeline.upkeep.recovery import check_finished, recovered
from history_pipeline.upkeep.rewriting import Rewritten, rewritten, unerased
from queue_core.errors import InvalidPostError
from queue_core.model.posting import SearchKey
from queue_core.storage.filter import Filter
from queue_core.storage.search_keys import UNSET, Unset, sought_key


@dataclass(frozen=True)
class Erased:
    """The rows that were erased from an archive, by id, and the files that were rewritten for it.

    `run`: None if nothing was to be erased, or after a dry run.
    """

    table: str
    target: str
    run: str | None = None
    record_ids: list[int] = field(default_factory=list)
    files: int = 0
    size_bytes: int = 0


def erase_archived(
    target: str,
    *,
    database: str | URL | SqlalchemyEngine,
    record_ids: Iterable[int] | None = None,
    search_key1: SearchKey | Unset = UNSET,
    search_key2: SearchKey | Unset = UNSET,
    table: str = "bus_events",
    dry_run: bool = False,
) -> Erased:
    """Erase payloads, keys, tokens, headers and error texts of entries in an archive, at once.

    The rows stay, with their ids, names, dates, nodes, states and counts. It needs neither Spark
    nor Java, only the extra `archive`. History is not touched: `forget` deletes from there.
    `erase_archived_tasks` does the same to finished tasks.

    Args:
        target: The directory of the archive.
        database: The database that was archived, which holds the log of the archive.
        record_ids: Only these entries.
        search_key1: Only entries with this key.
        search_key2: Only entries with this key.
        table: The main table whose history was archived. Default: `bus_events`.
        dry_run: True only tells the rows that would be erased. Default: False.

    Returns:
        The ids of the rows, without those that were erased before.

    Raises:
        ConfigurationError: `table` is no main table, or `target` no directory.
        InvalidPostError: Neither ids nor keys are given, or one that no entry can have.
        ArchiveNotFoundError: Nothing was archived there.
        ArchiveDamagedError: A file or manifest is missing or damaged.
        ArchiveConflictError: An archive, replay, truncation, compaction, expiry or another erasure
            is under way, one has published meanwhile, the archive is another database's, or
            `archive_history` must finish a run first.
        ArchiveTargetError: The directory can't be reached.
        StickybusError: The database can't be opened.
    """
    check_entries(table, "an erasure")
    wanted = Filter(record_ids=record_ids, search_key1=search_key1, search_key2=search_key2)
    _check_chosen(wanted, table)
    sought = Sought(wanted, None, None)
    return erase_sought(target, table, sought, database=database, dry_run=dry_run)


def erase_sought(
    target: str,
    table: str,
    sought: SoughtRows,
    *,
    database: str | URL | SqlalchemyEngine,
    dry_run: bool,
) -> Erased:
    """Erase the sought rows of an archive; see `erase_archived`."""
    log = ArchiveLog(ArrowStorage(folder(target, table)), table)
    log.check_begun()
    with opened_for(database, table, "stickybus-erase") as opened:
        if dry_run:
            return _erased(log, _chosen(log, agreement(log, opened).manifests, sought))
        with history_lock(opened, table) as connection, files_lock(opened, log):
            found = recovered(log, opened)
            check_finished(log, found)
            now = opened.fetch(opened.dialect.database_now)
            manifests = found.manifests
            chosen = _chosen(log, manifests, sought)
            if chosen:
                new = _rewritten(log, manifests, chosen, now)
                manifests = [*manifests, publish(log, opened, new, connection=connection)]
            remove_leftovers(log, manifests, now=now, logged_runs=found.rows)
            return _erased(log, chosen, manifests[-1].run if chosen else None)


class _Chosen(NamedTuple):
    """A file with rows that are to be erased, and the ids of these."""

    file: DataFile
    record_ids: list[int]


def _check_chosen(wanted: Filter, table: str) -> None:
    """Raises InvalidPostError unless something says which entries."""
    given = {"search_key1": wanted.search_key1, "search_key2": wanted.search_key2}
    keys = [
        sought_key(key, name, table) for name, key in given.items() if not isinstance(key, Unset)
    ]
    if None in keys or (wanted.record_ids is None and not keys):
        raise InvalidPostError(
            f"{table}: an erasure takes record_ids, search_key1, search_key2 or several of them, "
            "and no key may be None. Nothing was erased."
        )


def _chosen(
    log: ArchiveLog[ArrowStorage], manifests: Sequence[Manifest], sought: SoughtRows
) -> list[_Chosen]:
    """The files of an archive that hold what is sought, if it is not erased yet."""
    near = [file for file in live_files(manifests) if sought.may_be_in(file)]
    found = [_Chosen(file, _unerased(log, file, sought)) for file in near]
    return [one for one in found if one.record_ids]


def _unerased(log: ArchiveLog[ArrowStorage], file: DataFile, sought: SoughtRows) -> list[int]:
    """The ids of the rows of a file that match, and still say something of a customer."""
    kind, found = kind_of(log.table), list[int]()
    names, schema = (*kind.erased, kind.error), schema_of(kind.columns)
    with parquet_file(log.storage, file) as parquet:
        for group in range(parquet.num_row_groups):
            matching = list(sought.search.places(parquet, group))
            if not matching:
                continue
            *_order, ids, places = zip(*matching, strict=True)
            rows = parquet.read_row_group(group, columns=list(names)).take(list(places))
            there = unerased(named(rows, names, schema), kind).to_pylist()
            found += [one for one, full in zip(ids, there, strict=True) if full]
    return found


def _rewritten(
    log: ArchiveLog[ArrowStorage],
    published: Sequence[Manifest],
    chosen: Sequence[_Chosen],
    now: datetime,
) -> Manifest:
    """Write some files anew, and return the manifest that would replace them."""
    hashed = {file.path: one.hashed for one in published for file in one.files}
    kind, run, done = kind_of(log.table), new_run(now), list[Rewritten]()
    for number, (file, record_ids) in enumerate(chosen):
        folder = f"data/{run}/{basename(dirname(file.path))}"
        path = f"{folder}/part-{number:05}-{run}.zstd.parquet"
        done.append(rewritten(log.storage, kind, file, record_ids, path, hashed=hashed[file.path]))
    new = replacing(
        published,
        Kind.ERASURE,
        run,
        now,
        old=[one.file for one in chosen],
        new=[one.file for one in done],
    )
    erased = Erasure(
        record_ids=_ids(chosen),
        before=joined([one.before for one in done]),
        after=joined([one.after for one in done]),
    )
    return structs.replace(new, erased=erased)


def _ids(chosen: Sequence[_Chosen]) -> list[int]:
    return sorted(record_id for one in chosen for record_id in one.record_ids)


def _erased(
    log: ArchiveLog[ArrowStorage], chosen: Sequence[_Chosen], run: str | None = None
) -> Erased:
    return Erased(
        table=log.table,
        target=log.where,
        run=run,
        record_ids=_ids(chosen),
        files=len(chosen),
        size_bytes=sum(one.file.size_bytes for one in chosen),
    )

"""`stickybus history erase`: rows of an archive lose the data of a customer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from history_pipeline.extras import check_arrow
from stickybus.cli.archive_options import Folder
from stickybus.cli.entry_options import AnyTable, Key1, Key2, Keys, SomeIds, keys_of
from stickybus.cli.output import say, write_json, write_table
from stickybus.cli.target import Json, Url, connected, opened, url_of
from stickybus.cli.usage import UsageError

if TYPE_CHECKING:
    from history_pipeline import Erased

ERASED = {"table": "TABLE", "entries": "ENTRIES", "ids": "IDS", "files": "FILES"}
_SHOWN_IDS = 5
"""Ids of a table that are listed."""
_TASKS = "work_task_history"


def erase(
    record_ids: SomeIds = None,
    *,
    folder: Folder,
    key1: Key1 = None,
    key2: Key2 = None,
    task_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--task", "-t", help="Id of a finished task; may be repeated.", show_default=False
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Erase them; else only show them.")] = False,
    table: AnyTable = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Erase payloads, keys, tokens, headers and error texts of entries in an archive, for good.

    The rows stay, with ids, names, dates, nodes, states and counts. The files that hold them are
    rewritten, and the old ones removed at once: a reader at that moment starts again. Without --yes
    it only shows the rows that it would erase. `forget` does the same for rows that are not
    archived. --task erases values and error texts of finished tasks. Needs the extra `archive`.

    Examples:
      stickybus history erase --in /var/archive --key2 4711 --url postgresql://user@host/name

      stickybus history erase 4711 4712 --in /var/archive --table bus_events --yes

      stickybus history erase --task 2f0c --in /var/archive --yes
    """
    of_entries = bool(record_ids) or key1 is not None or key2 is not None
    if not of_entries and not task_ids:
        raise UsageError("give ids, --key1, --key2 or several of them, or --task")
    if task_ids and (of_entries or table not in {None, _TASKS}):
        raise UsageError("--task takes finished tasks: give no ids, --key1, --key2 and --table")
    check_arrow()
    found = (
        _of_tasks(folder, task_ids, url, yes=yes)
        if task_ids
        else _of_entries(folder, record_ids, keys_of(key1, key2), table, url, yes=yes)
    )
    if as_json:
        write_json({"erased": yes, "tables": [asdict(one) for one in found]})
    else:
        _tell(found, yes=yes)


def _of_tasks(folder: str, ids: Sequence[str], url: str | None, *, yes: bool) -> list[Erased]:
    from history_pipeline import erase_archived_tasks

    with connected(url):
        pass  # a mistyped file is told before anything is erased
    return [erase_archived_tasks(folder, ids, database=url_of(url), dry_run=not yes)]


def _of_entries(
    folder: str,
    record_ids: Sequence[int] | None,
    keys: Keys,
    table: str | None,
    url: str | None,
    *,
    yes: bool,
) -> list[Erased]:
    from history_pipeline import erase_archived
    from history_pipeline.archives.archive_log import archived_tables
    from history_pipeline.archives.arrow_storage import ArrowStorage
    from history_pipeline.rows.kind import ENTRIES, check_entries

    if table is not None:
        check_entries(table, "an erasure by record ids or keys")
    tables = archived_tables(ArrowStorage(folder), ENTRIES) if table is None else [table]
    if record_ids and len(tables) > 1:
        raise UsageError(f"ids are those of one table: name it by --table ({', '.join(tables)})")
    for one in tables:
        with opened(url, one):
            pass  # a mistyped file or table is told before anything is erased
    return [
        erase_archived(
            folder,
            database=url_of(url),
            record_ids=record_ids or None,
            **keys,
            table=one,
            dry_run=not yes,
        )
        for one in tables
    ]


def _tell(found: Sequence[Erased], *, yes: bool) -> None:
    rows = [
        {
            "table": one.table,
            "entries": len(one.record_ids),
            "ids": _named(one.record_ids),
            "files": one.files,
        }
        for one in found
    ]
    write_table("Erased" if yes else "Would be erased", ERASED, rows, empty="")
    if not yes:
        say("Nothing was erased: this was a dry run. To erase it, add --yes")


def _named(ids: Sequence[int]) -> str | None:
    more = f" and {len(ids) - _SHOWN_IDS} more" if len(ids) > _SHOWN_IDS else ""
    return ", ".join(map(str, ids[:_SHOWN_IDS])) + more or None

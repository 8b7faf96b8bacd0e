"""`stickybus history log`: the changes of an archive, with authors and dates."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from history_pipeline.extras import check_arrow
from stickybus.cli.archive_options import ArchivedTable, Folder
from stickybus.cli.entry_options import DEFAULT_TABLE
from stickybus.cli.output import write_json, write_table
from stickybus.cli.target import Json, Url, url_of

if TYPE_CHECKING:
    from history_pipeline import Change

COLUMNS = {
    "number": "NUMBER",
    "began": "BEGAN (UTC)",
    "kind": "WHAT",
    "entries": "ENTRIES",
    "ids": "IDS",
    "who": "WHO",
    "database_user": "DATABASE USER",
    "without": "WITHOUT",
    "run": "RUN",
}


def log(
    *, folder: Folder, table: ArchivedTable = DEFAULT_TABLE, url: Url = None, as_json: Json = False
) -> None:
    """Show the changes of an archive by author and date: its added, replaced and removed files.

    With the URL of the database that was archived, the newest changes are known to be there as
    well. Needs the extra `archive`.

    Example:
      stickybus history log --in /var/archive --url postgresql://user@host/name
    """
    check_arrow()
    from history_pipeline import archive_changes

    found = archive_changes(folder, table=table, database=url_of(url) if url else None)
    if as_json:
        write_json([msgspec.to_builtins(asdict(one)) for one in found])
    else:
        write_table(
            f"Changes of the archive of {table}",
            COLUMNS,
            [_row(one) for one in found],
            empty=f"Nothing was archived of {table} yet.",
        )


def _row(change: Change) -> dict[str, Any]:
    author = change.author
    return {
        **asdict(change),
        "kind": change.kind.value,
        "ids": f"{change.first_id} to {change.last_id}",
        "who": author and f"{author.user} on {author.host}",
        "database_user": author and author.database_user,
        "without": ", ".join(change.without) or None,
    }

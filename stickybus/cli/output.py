"""The output of commands: results to standard output, everything else to standard error."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 200
"""Columns of a table that no terminal shows: a file or a pipe has no width."""


def console() -> Console:
    """Standard output."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def errors() -> Console:
    """Standard error: progress and remarks."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """A result in words, in one piece; nothing in it is markup."""
    console().print(text, markup=False, soft_wrap=True)


def remark(text: str) -> None:
    """Something besides the result, to standard error; nothing in it is markup."""
    errors().print(text, markup=False)


def write_json(value: Any) -> None:
    """One JSON document."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=_plain) + "\n")


def write_table(
    title: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], *, empty: str
) -> None:
    """A table of `rows`; `columns` maps their keys to headings. Numbers stand on the right."""
    if not rows:
        say(empty)
        return
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=None,
        pad_edge=False,
    )
    for key, heading in columns.items():
        numeric = all(row[key] is None or (type(row[key]) in {int, float}) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        # Text, not str: texts of the database are no markup.
        table.add_row(*(Text(_shown(row[key])) for key in columns))
    console().print(table)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "-"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        case float():
            return f"{value:,.1f}"
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def plural(count: int, noun: str) -> str:
    """`1 entry`, `1,000 entries`."""
    changes = noun.endswith("y") and noun[-2] not in "aeiou"
    nouns = noun if count == 1 else f"{noun[:-1]}ies" if changes else f"{noun}s"
    return f"{count:,} {nouns}"

"""The output of commands: results to standard output, everything else to standard error."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

CUT = frozenset({"error", "err", "payload", "value"})
"""Columns that a narrow terminal cuts to one line; a command on one row shows all of it."""
FOLDED = frozenset({"what", "shown", "queues", "reason", "shown_rule", "told", "without"})
"""Columns that a narrow terminal folds at words."""
LEAST = 16
"""Cells that are cut or folded keep at least this width."""
SPARE = (
    "newest_dead_letter",
    "epoch",
    "pid",
    "hostname",
    "lane",
    "redispatch_count",
    "processing_owner",
    "error_count",
    "failed_per_second",
    "posted_per_second",
    "processed_per_second",
)
"""Columns that a narrow terminal does without, in this order."""
GAP = 2
UNBOUNDED = 1_000_000
_CONTROLS = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (
        *(code for code in range(0x20) if chr(code) not in "\n\t"),
        *range(0x7F, 0xA0),
        *(0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
    )
}
"""What a terminal obeys instead of showing it, or what turns the direction of a line."""
NOTHING = "-"


def console() -> Console:
    """Standard output."""
    return Console(width=_width(), highlight=False)


def _width() -> int | None:
    """The width of tables: of the terminal, or COLUMNS. A pipe or a file has none."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return None  # Rich finds out
    return UNBOUNDED


def errors() -> Console:
    """Standard error: progress and remarks."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """A result in words, in one piece; nothing in it is markup."""
    console().print(visible(text), markup=False, soft_wrap=True)


def remark(text: str) -> None:
    """Something besides the result, to standard error; nothing in it is markup."""
    errors().print(visible(text), markup=False)


def visible(text: str) -> str:
    """A text of the database, in which a terminal finds nothing to obey."""
    return text.translate(_CONTROLS)


def write_json(value: Any) -> None:
    """One JSON document."""
    letters = sys.stdout.encoding.lower().startswith("utf")
    text = json.dumps(value, indent=2, ensure_ascii=not letters, default=_plain)
    sys.stdout.write(text + "\n")


def write_table(
    title: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], *, empty: str
) -> None:
    """A table of `rows`; `columns` maps their keys to headings. Numbers stand on the right.

    Where it is too wide for the terminal, it has fewer columns. If these are still too wide, each
    row has a block of lines.
    """
    if not rows:
        say(empty)
        return
    texts = [{key: _shown(row[key]) for key in columns} for row in rows]
    screen = console()
    screen.print(Text(title, style="bold"), soft_wrap=True)
    for layout in _layouts(columns, texts):
        if _least_width(layout, texts) <= screen.width:
            screen.print(_table(layout, rows, texts))
            return
    filled = _filled(columns, texts)
    for number, row in enumerate(texts):
        if number:
            screen.print()
        block = {heading: row[key] for key, heading in filled.items()}
        screen.print(_block(block))


def _layouts(
    columns: Mapping[str, str], texts: Sequence[Mapping[str, str]]
) -> Iterator[dict[str, str]]:
    """The same table, ever narrower."""
    yield {**columns}
    filled = _filled(columns, texts)
    yield filled
    layout = {key: heading.replace(" ", "\n") for key, heading in filled.items()}
    yield layout
    for spare in SPARE:
        if layout.pop(spare, None):
            yield layout


def _filled(columns: Mapping[str, str], texts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The columns in which something stands, beside zeros."""
    return {
        key: heading
        for key, heading in columns.items()
        if any(row[key] not in {"0", "0.0", NOTHING} for row in texts)
    }


def _least_width(layout: Mapping[str, str], texts: Sequence[Mapping[str, str]]) -> int:
    widths = []
    for key, heading in layout.items():
        cells = (
            line for text in (heading, *(row[key] for row in texts)) for line in text.split("\n")
        )
        width = max(map(cell_len, cells))
        widths.append(min(width, LEAST) if key in CUT | FOLDED else width)
    return sum(widths) + GAP * (len(widths) - 1)


def _table(
    layout: Mapping[str, str],
    rows: Sequence[Mapping[str, Any]],
    texts: Sequence[Mapping[str, str]],
) -> Table:
    table = Table(header_style="bold", box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for key, heading in layout.items():
        numeric = all(row[key] is None or type(row[key]) in {int, float} for row in rows)
        table.add_column(
            heading,
            justify="right" if numeric else "left",
            no_wrap=key not in CUT | FOLDED,
            overflow="ellipsis" if key in CUT else "fold",
        )
    for row in texts:
        # Text, not str: texts of the database are no markup.
        table.add_row(*(Text(row[key], no_wrap=key in CUT or None) for key in layout))
    return table


def _block(facts: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, GAP, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, text in facts.items():
        table.add_row(heading, Text(text))
    return table


def _shown(value: Any) -> str:
    match value:
        case None:
            return NOTHING
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        case float():
            # Two digits also of a small number: an entry a minute is not 0.
            return f"{value:.2g}" if 0 < abs(value) < 1 else f"{value:,.1f}"
        case bool():
            return "yes" if value else "no"
        case _:
            return visible(str(value))


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

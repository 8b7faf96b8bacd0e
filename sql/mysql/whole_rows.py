"""Rows of entries in three columns: one text of JSON with all that is short, and the payload.

PyMySQL is Python, and reads each column of an answer, and of its description, by itself. That took
most of a claim's CPU time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Column, ColumnElement, String, func

from sql.tables import ENTRY_COLUMNS
from sql.types import as_utf8

_PAYLOAD = "event_json", "event_bytes"
"""Columns that JSON would make larger than a packet, or can't hold."""
_PAYLOAD_PLACE = ENTRY_COLUMNS.index(_PAYLOAD[0])
_DATES = [
    ENTRY_COLUMNS.index(name)
    for name in ("created_date", "effective_date", "processing_available_date")
]
_VALUES = msgspec.json.Decoder(list[Any])


def whole(columns: Iterable[Column[Any]]) -> list[ColumnElement[Any]]:
    """The columns that a statement selects in place of all columns of an entry."""
    by_name = {column.name: column for column in columns}
    payload = [by_name.pop(name) for name in _PAYLOAD]
    return [func.json_array(*map(_in_one_collation, by_name.values())), *payload]


def _in_one_collation(column: Column[Any]) -> ColumnElement[Any]:
    """A column as MariaDB takes it: it refuses texts of different collations."""
    return as_utf8(column) if isinstance(column.type, String) else column


def read(rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    """The rows of all of an entry's columns."""
    found = list[Sequence[Any]]()
    # The rows of one claim share a few dates.
    dates = dict[str | None, datetime | None]({None: None})
    for short, *payload in rows:
        values = _VALUES.decode(short)
        values[_PAYLOAD_PLACE:_PAYLOAD_PLACE] = payload
        for place in _DATES:
            date = values[place]
            if date not in dates:
                dates[date] = datetime.fromisoformat(f"{date}+00:00")
            values[place] = dates[date]
        found.append(values)
    return found

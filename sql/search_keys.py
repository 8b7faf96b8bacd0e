"""A search key as rows hold it: a number in its column, beside the text that the number is of.

An integer is its own number. A text has the first 64 bits of its SHA-256 there, and stands itself
in the headers. So one index of numbers finds both, and rows without texts cost nothing more. Two
texts with one number can be made by trying (2^32 hashes), so that the text is compared as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, FromClause

RESERVED = "!"
"""Headers whose names begin so are the library's."""
SEARCH_KEYS = ("search_key1", "search_key2")
"""The columns of search keys."""
AWAITED = RESERVED + "awaited"
"""Mark of an entry that others wait for. It may come to an entry that runs already."""


class StoredKey(NamedTuple):
    """The number in a column of a search key, and the text behind it; None if it is an integer."""

    number: int
    text: str | None = None

    def matches(self, column: str, table: FromClause) -> list[ColumnElement[bool]]:
        """The conditions on `table` for rows that have this key in `column`."""
        equal = table.c[column] == self.number
        if self.text is None:
            return [equal]
        return [equal, table.c.headers.contains(self.member(column), autoescape=True)]

    def member(self, column: str) -> str:
        """A key that is a text as it stands among the headers of a row, for `column`."""
        # Inside another header's text its quotes were escaped.
        return msgspec.json.encode({RESERVED + column: self.text}).decode()[1:-1]

    def stands_in(self, column: str, row: Mapping[str, Any]) -> bool:
        """Whether a row that was read has this key in `column`."""
        return row[column] == self.number and texts(row["headers"]).get(column) == self.text


def of_text(text: str) -> StoredKey:
    """The key of a text."""
    return StoredKey(int.from_bytes(sha256(text.encode()).digest()[:8], signed=True), text)


def texts(headers: str | None) -> dict[str, str]:
    """The texts of search keys by column, from the headers of a row.

    None of them if the headers can't be read.
    """
    # A row by hand may hold bytes on SQLite.
    if not isinstance(headers, str) or RESERVED not in headers:
        return {}
    try:
        found = msgspec.json.decode(headers, type=dict[str, str])
    except (msgspec.MsgspecError, RecursionError):
        return {}  # a reader of the headers themselves gets the error
    return {name[1:]: text for name, text in found.items() if name.startswith(RESERVED)}


def headers_with(headers: str | None, keys: Mapping[str, StoredKey | None]) -> str | None:
    """The headers of a row, after its search keys in `keys` have changed."""
    found = msgspec.json.decode(headers, type=dict[str, str]) if headers else {}
    for column, key in keys.items():
        found.pop(RESERVED + column, None)
        if key is not None and key.text is not None:
            found[RESERVED + column] = key.text
    return msgspec.json.encode(found).decode() if found else None


def with_marks(headers: str | None, marks: Mapping[str, str]) -> str:
    """The headers of a row, with marks of the library besides, by their whole names."""
    if headers:
        marks = {**msgspec.json.decode(headers, type=dict[str, str]), **marks}
    return msgspec.json.encode(marks).decode()


def marks_of(headers: str | None) -> dict[str, str]:
    """The library's marks among the headers of a row, without search keys."""
    return {
        RESERVED + name: text
        for name, text in texts(headers).items()
        if not name.startswith("search_key")
    }

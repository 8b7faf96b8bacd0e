"""Search keys: the integers, texts and UUIDs by which entries are found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from queue_core.errors import InvalidPostError
from queue_core.runtime.shown import shown
from queue_core.storage.arguments import as_integer, storable_name
from sql.search_keys import StoredKey, headers_with, of_text

_KEY_LENGTH = 255
"""Longest search key that is a text, in characters."""


class Unset:
    """Not given, where None is a value."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


class Keyless:
    """Without a search key; its one value is `KEYLESS`."""

    def __repr__(self) -> str:
        return "KEYLESS"


KEYLESS = Keyless()
"""In a search or a removal: only entries that have no such key."""


def columns_of(keys: Mapping[str, StoredKey | None], headers: str | None) -> dict[str, Any]:
    """The columns of search keys, and `headers` as they are with these."""
    columns: dict[str, Any] = {
        column: None if key is None else key.number for column, key in keys.items()
    }
    if headers is not None or any(
        key is not None and key.text is not None for key in keys.values()
    ):
        headers = headers_with(headers, keys)
    return {**columns, "headers": headers}


def search_key(value: Any, key: str, queue_name: str) -> StoredKey | None:
    """Check a search key.

    Raises InvalidPostError unless it is a 64-bit integer, a UUID or a text that can be stored.
    """
    if value is None:
        return None
    if isinstance(value, UUID):
        return of_text(str(value))
    if isinstance(value, str):
        return of_text(storable_name(value, key, limit=_KEY_LENGTH, queue_name=queue_name))
    number = as_integer(value)
    if number is None:
        raise InvalidPostError(
            f"{queue_name}: {key}={shown(value)} ({type(value).__name__}) can't be a search key. "
            f"Allowed: 64-bit integers, UUIDs, texts of 1 to {_KEY_LENGTH} characters, or None. "
            "Nothing was written.",
            queue_name=queue_name,
            key=key,
        )
    return StoredKey(number)


def sought_key(value: Any, key: str, queue_name: str) -> StoredKey | None:
    """The key that rows are compared with, None for KEYLESS.

    Raises InvalidPostError for a value that is neither a search key nor KEYLESS.

    None is most often a variable that was never set: taken as a key it would mean the entries of
    everybody else.
    """
    if isinstance(value, Keyless):
        return None
    if value is None:
        raise InvalidPostError(
            f"{queue_name}: {key}=None names no entry. Nothing was read or changed; for entries "
            f"without this key, pass {key}=KEYLESS.",
            queue_name=queue_name,
            key=key,
        )
    return search_key(value, key, queue_name)

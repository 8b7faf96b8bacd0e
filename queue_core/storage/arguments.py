"""Checks of arguments: names, ids and numbers, before anything is written."""

from __future__ import annotations

from typing import Any

from queue_core.errors import InvalidPostError, NameTooLongError
from queue_core.model.names import name_fault
from queue_core.runtime.shown import a_kind, shown
from sql.tables import NAME_LENGTH

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def storable_integer(value: Any, key: str, *, least: int = _SMALLEST) -> int:
    """Check an id or a limit.

    Raises InvalidPostError unless it is a 64-bit integer of `least` or more.
    """
    if not is_integer(value) or value < least:
        raise InvalidPostError(
            f"{key}={shown(value)} ({type(value).__name__}) is no 64-bit integer"
            f"{f' of {least} or more' if least > _SMALLEST else ''}. Nothing was changed.",
            key=key,
            value=shown(value),
        )
    return int(value)


def is_integer(value: Any) -> bool:
    """Whether it is a 64-bit integer, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool) and _SMALLEST <= value <= _LARGEST


def storable_name(
    value: Any, key: str, *, limit: int = NAME_LENGTH, queue_name: str | None = None
) -> str:
    """Check a name or token.

    Raises InvalidPostError if it is none that every database can store.
    """
    fault = (
        name_fault(value, limit) if isinstance(value, str) else f"a text, not {a_kind(type(value))}"
    )
    if fault is None:
        return str.__str__(value)  # an Enum's own would be another text
    error = NameTooLongError if isinstance(value, str) and len(value) > limit else InvalidPostError
    raise error(
        f"{key}={shown(value)} is not allowed: {fault}. Nothing was written.",
        queue_name=queue_name,
        key=key,
        value=shown(value),
        limit=limit,
    )

"""Checks of arguments: names, ids and numbers, before anything is written."""

from __future__ import annotations

from typing import Any

from queue_core.errors import InvalidPostError, NameTooLongError
from queue_core.model.names import text_fault
from queue_core.runtime.exact import exact_integer, exact_text
from queue_core.runtime.shown import a_kind, shown
from sql.tables import NAME_LENGTH

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def storable_integer(value: Any, key: str, *, least: int = _SMALLEST) -> int:
    """Check an id or a limit.

    Raises InvalidPostError unless it is a 64-bit integer of `least` or more.
    """
    number = as_integer(value)
    if number is None or number < least:
        raise InvalidPostError(
            f"{key}={shown(value)} ({type(value).__name__}) is no 64-bit integer"
            f"{f' of {least} or more' if least > _SMALLEST else ''}. Nothing was changed.",
            key=key,
            value=shown(value),
        )
    return number


def as_integer(value: Any) -> int | None:
    """A 64-bit integer, None if it is none. True and False are none."""
    number = exact_integer(value)
    return number if number is not None and _SMALLEST <= number <= _LARGEST else None


def flag(value: object, key: str) -> bool:
    """Whether a value says yes.

    Raises InvalidPostError if it can't tell, as an array of several can't.
    """
    try:
        return bool(value)
    except Exception as error:
        raise InvalidPostError(
            f"{key}={shown(value)} ({type(value).__name__}) says neither yes nor no. Nothing was "
            "changed.",
            key=key,
            value=shown(value),
        ) from error


def storable_name(
    value: Any, key: str, *, limit: int = NAME_LENGTH, queue_name: str | None = None
) -> str:
    """A name or token, as a `str` of Python's own.

    Raises InvalidPostError if it is none that every database can store.
    """
    text = exact_text(value)
    if text is None:
        fault: str | None = f"a text, not {a_kind(type(value))}"
    else:
        fault = text_fault(text, limit)
        if fault is None:
            return text
    too_long = text is not None and len(text) > limit
    error = NameTooLongError if too_long else InvalidPostError
    raise error(
        f"{key}={shown(value)} is not allowed: {fault}. Nothing was written.",
        queue_name=queue_name,
        key=key,
        value=shown(value),
        limit=limit,
    )

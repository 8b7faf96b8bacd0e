"""The values of tasks and the contents of docs, as they are stored: JSON, or bytes."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from queue_core.errors import (
    PayloadNotDecodableError,
    PayloadNotSerialisableError,
    PayloadTooLargeError,
)
from queue_core.runtime.shown import a_kind

Stored = tuple[str | None, bytes | None]
"""JSON, or bytes. Neither is a value that is None."""


class Unread:
    """A value that was not read, where None is a value. A change leaves the stored one."""

    def __repr__(self) -> str:
        return "UNREAD"


UNREAD = Unread()
"""The value of a task, or the content of a doc, that was read without, or that can't be read."""

MOST_LEVELS = 30
"""Lists and objects inside one another. gRPC's callers can't read many more: they would lose the
task, and its lease, each time they claim it."""
MOST_DIGITS = 4_299
"""Of an integer. By default Python writes one digit more, but msgspec, which counts the sign, reads
no such number below zero."""
_BEYOND = 10**MOST_DIGITS
_SINGLE = frozenset({type(None), bool, int, float, str})
_SEVERAL = frozenset({list, dict})


def encode(value: Any, cap_bytes: int, *, what: str) -> Stored:
    """A value as two columns hold it. `what` names it in messages.

    Raises PayloadNotSerialisableError and PayloadTooLargeError.
    """
    if value is None:
        return None, None
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        _check_size(len(data), cap_bytes, what)
        return None, data
    try:
        _check_kinds(value)
        data = msgspec.json.encode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PayloadNotSerialisableError(
            f"{what} can't be stored: {error}. Nothing was written. Give a JSON value, or bytes.",
            codec="json",
        ) from error
    _check_size(len(data), cap_bytes, what)
    return data.decode(), None


def decode(text: str | None, data: bytes | None) -> Any:
    """The value that two columns hold.

    Raises PayloadNotDecodableError for what this library has not written.
    """
    if data is not None:
        return bytes(data)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise PayloadNotDecodableError(f"a stored value is no JSON: {error}") from error


def _check_kinds(value: Any) -> None:
    """Raise ValueError unless a value arrives as it was given: of JSON's types, all do."""
    waiting = [(value, 0)]
    while waiting:
        one, levels = waiting.pop()
        kind = type(one)
        if kind in _SEVERAL:
            levels += 1
            if levels > MOST_LEVELS:
                raise ValueError(f"it has more than {MOST_LEVELS} levels of lists and objects")
        if kind is Unread:
            raise ValueError("it was not read: read it, or give a new one")
        if kind is dict:
            if any(type(name) is not str for name in one):
                raise ValueError("a name in it is no text")
            waiting.extend((inner, levels) for inner in one.values())
        elif kind is list:
            waiting.extend((inner, levels) for inner in one)
        elif kind not in _SINGLE:
            raise ValueError(f"it holds {a_kind(kind)}")
        elif kind is int and not -_BEYOND < one < _BEYOND:
            raise ValueError(f"it holds an integer of more than {MOST_DIGITS:,} digits")
        elif kind is float and not math.isfinite(one):
            raise ValueError(f"it holds {one}")


def _check_size(size: int, cap_bytes: int, what: str) -> None:
    if size > cap_bytes:
        raise PayloadTooLargeError(
            f"{what} has {size:,} bytes, the cap is {cap_bytes:,}. Nothing was written. Store it "
            "elsewhere and refer to it, or raise max_value_bytes.",
            size_bytes=size,
            cap_bytes=cap_bytes,
        )

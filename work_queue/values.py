"""The values of tasks and the contents of docs, as they are stored: JSON, or bytes."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from queue_core.errors import (
    PayloadNotDecodableError,
    PayloadNotSerialisableError,
    PayloadTooLargeError,
)
from queue_core.model.arrival import difference

Stored = tuple[str | None, bytes | None]
"""JSON, or bytes. Neither is a value that is None."""


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
        data = msgspec.json.encode(value)
        if b"null" in data:
            json.dumps(value, allow_nan=False)  # msgspec writes NaN and infinities as null
        place = difference(value, msgspec.json.decode(data))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise PayloadNotSerialisableError(
            f"{what} can't be stored: {error}. Nothing was written. Give a JSON value, or bytes.",
            codec="json",
        ) from error
    if place is not None:
        raise PayloadNotSerialisableError(
            f"{what} can't be stored: {place or 'it'} would not arrive as it was given. Nothing was "
            "written. Give a JSON value, or bytes.",
            codec="json",
        )
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
    except (msgspec.DecodeError, ValueError) as error:
        raise PayloadNotDecodableError(f"a stored value is no JSON: {error}") from error


def _check_size(size: int, cap_bytes: int, what: str) -> None:
    if size > cap_bytes:
        raise PayloadTooLargeError(
            f"{what} has {size:,} bytes, the cap is {cap_bytes:,}. Nothing was written. Store it "
            "elsewhere and refer to it, or raise max_value_bytes.",
            size_bytes=size,
            cap_bytes=cap_bytes,
        )

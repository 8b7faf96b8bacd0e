"""JSON values as google.protobuf.Value, whose numbers are doubles, and as the bytes of old."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from queue_core.errors import InvalidRequestError

EXACT = 2**53
"""Up to here a double holds each integer."""
BYTES = "$bytes"
"""The only name of the object that stands for bytes, in base64, where a wire has no bytes."""


def write_value(value: Any, message: Any) -> None:
    """Write a value, or bytes, into a `Value`.

    An integer that no double holds is written as its decimal digits, a text.
    """
    match value:
        case None:
            message.null_value = 0
        case bool():
            message.bool_value = value
        case int() if abs(value) > EXACT:
            message.string_value = str(value)
        case int() | float():
            message.number_value = value
        case str():
            message.string_value = value
        case bytes():
            write_value({BYTES: base64.b64encode(value).decode()}, message)
        case list():
            values = message.list_value.values
            message.list_value.SetInParent()
            for one in value:
                write_value(one, values.add())
        case dict():
            message.struct_value.SetInParent()
            fields = message.struct_value.fields
            for name, one in value.items():
                write_value(one, fields[name])


def read_value(message: Any) -> Any:
    """The value, or bytes, that a `Value` says. Nothing is null."""
    match message.WhichOneof("kind"):
        case "bool_value":
            return message.bool_value
        case "number_value":
            number = message.number_value
            return int(number) if number.is_integer() and abs(number) <= EXACT else number
        case "string_value":
            return message.string_value
        case "list_value":
            return [read_value(one) for one in message.list_value.values]
        case "struct_value":
            fields = message.struct_value.fields
            found = {name: read_value(fields[name]) for name in sorted(fields)}
            return _read_bytes(found[BYTES]) if list(found) == [BYTES] else found
        case _:
            return None


def _read_bytes(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f'{{"{BYTES}": …}} stands for bytes, but holds no base64: {error}. Nothing was written.',
            key="value",
        ) from None


def as_bytes(value: Any) -> bytes:
    """A value as old callers read it: bytes as they are, anything else as JSON."""
    if isinstance(value, bytes):
        return value
    return b"" if value is None else msgspec.json.encode(value)

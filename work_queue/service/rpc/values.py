"""JSON values as google.protobuf.Value, whose numbers are doubles."""

from __future__ import annotations

from typing import Any

EXACT = 2**53
"""Up to here a double holds each integer."""


def write_value(value: Any, message: Any) -> None:
    """Write a value into a `Value`.

    An integer that no double holds is written as its decimal digits, a text: a caller that sends
    them back has lost none of them.
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
        case list():
            message.list_value.SetInParent()
            for one in value:
                write_value(one, message.list_value.values.add())
        case dict():
            message.struct_value.SetInParent()
            for name, one in value.items():
                write_value(one, message.struct_value.fields[name])


def read_value(message: Any) -> Any:
    """The value that a `Value` says. Nothing is null; a whole number is an integer."""
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
            return {name: read_value(one) for name, one in message.struct_value.fields.items()}
        case _:
            return None

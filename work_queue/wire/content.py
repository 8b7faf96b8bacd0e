"""A task's value, or a doc's content, on the wire."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, ValidationError, field

from work_queue.values import UNREAD, decode, encode

NULL = Raw(b"null")


class Content(Struct, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    """JSON as it is stored, with all its digits; or bytes; or that it was not read. Else None."""

    json: Raw = NULL
    data: bytes | None = field(default=None, name="bytes")
    unread: bool = False


def content_of(value: Any, cap_bytes: int, *, what: str) -> Content:
    """A value for the wire. Raises PayloadError for what can't be stored."""
    text, data = encode(value, cap_bytes, what=what)
    return Content(NULL if text is None else Raw(text.encode()), data)


def value_of(content: Content) -> Any:
    """The value. Raises ValidationError for what is no value, or several."""
    text = bytes(content.json)
    if (text != b"null") + (content.data is not None) + content.unread > 1:
        raise ValidationError("a value is one of json, bytes and unread")
    if content.unread:
        return UNREAD
    return decode(text.decode(), content.data)

"""The plain values of calls as typed structures of the wire, field by field.

A mirror has the fields of its dataclass. One of any type is a task's value or a doc's content. The
kinds that stand for one another carry their name. A strict one refuses fields that it does not
know: what a request says must be done, or be refused; an answer may say more than its reader knows.
"""

from __future__ import annotations

import dataclasses
import sys
from datetime import UTC, datetime
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, defstruct, field

from work_queue.modification import Action, Change
from work_queue.refs import Ref
from work_queue.values import UNREAD
from work_queue.wire.content import Content, content_of, value_of

NAMED = frozenset({*get_args(Action), *get_args(Ref)})
"""Kinds of which a place can hold several."""


def to_wire(value: Any, cap_bytes: int = sys.maxsize) -> Any:
    """The mirror of a plain value, and of those in it.

    Raises PayloadError for a value or content that can't be stored, or is longer than the cap.
    """
    if isinstance(value, tuple | list):
        return [to_wire(one, cap_bytes) for one in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, str):
        return str.__str__(value)  # of a subclass, such as an enum
    if not dataclasses.is_dataclass(value):
        return value
    kind: Any = type(value)
    contents = _contents(kind)
    return mirror(kind)(
        **{
            one.name: _content(value, one.name, cap_bytes)
            if one.name in contents
            else to_wire(getattr(value, one.name), cap_bytes)
            for one in dataclasses.fields(kind)
        }
    )


def from_wire(value: Any) -> Any:
    """The plain value of a mirror, and of those in it. Raises ValidationError."""
    if isinstance(value, Content):
        return value_of(value)
    if isinstance(value, tuple | list):
        return type(value)(from_wire(one) for one in value)
    kind = _KINDS.get(type(value))
    if kind is None:
        return value
    return kind(**{one: from_wire(getattr(value, one)) for one in value.__struct_fields__})


@cache
def mirror(kind: Any, *, strict: bool = True) -> type[Struct]:
    """The structure for values of a dataclass."""
    hints = get_type_hints(kind)
    made = defstruct(
        kind.__name__,
        [_field(one, mirrored(hints[one.name], strict=strict)) for one in dataclasses.fields(kind)],
        tag=kind.__name__ if kind in NAMED else None,
        kw_only=True,
        omit_defaults=True,
        forbid_unknown_fields=strict,
        frozen=True,
    )
    _KINDS[made] = kind
    return made


_KINDS = dict[type, Any]()


def mirrored(hint: Any, *, strict: bool = True) -> Any:
    """The type on the wire for what is annotated so."""
    if hint is Any:
        return Content
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return mirror(hint, strict=strict)
    origin, inner = get_origin(hint), tuple(mirrored(one, strict=strict) for one in get_args(hint))
    if origin in {tuple, list}:
        return origin[inner]
    if origin in {Union, UnionType}:
        return Union[inner]  # noqa: UP007 -- made of a tuple
    return hint


def _field(given: dataclasses.Field[Any], wire: Any) -> Any:
    if given.default_factory is not dataclasses.MISSING:
        return given.name, wire, field(default_factory=given.default_factory)
    if given.default is dataclasses.MISSING:
        return given.name, wire
    if wire is Content:
        return given.name, wire, field(default_factory=Content)
    return given.name, wire, given.default


@cache
def _contents(kind: Any) -> frozenset[str]:
    return frozenset(name for name, hint in get_type_hints(kind).items() if hint is Any)


def _content(holder: Any, name: str, cap_bytes: int) -> Content:
    value = getattr(holder, name)
    kind = type(holder)
    if value is UNREAD and (kind not in NAMED or kind is Change):
        return Content(unread=True)  # it was read so, or stays as it is
    return content_of(value, cap_bytes, what=f"{kind.__name__}: the {name}")

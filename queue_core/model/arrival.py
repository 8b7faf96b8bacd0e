"""Whether a posted event arrives: its decoded copy is compared with it before it is written.

`==` is not enough: a class may leave fields out of it, or take a subclass for its base, or its base
for a subclass.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect

_ATOMS = frozenset(
    {type(None), bool, int, float, str, bytes, datetime, date, timedelta, Decimal, UUID},
)
"""Types whose `==` compares all that there is."""
_JSON = frozenset({type(None), bool, int, float, str, list, dict})
_ABSENT = object()

_names: dict[type, tuple[str, ...] | None] = {}


def difference(posted: Any, arrived: Any) -> str | None:
    """The first place where `arrived` differs from `posted`, such as `.lines[0].note`, or None.

    A value whose annotation leaves the type open arrives with JSON's types, and a sequence as the
    kind that the field declares: neither is a difference. Raises any error of a user's
    class that is compared.
    """
    kind = type(arrived)
    if kind in _ATOMS and type(posted) is kind:
        return None if posted == arrived else ""
    if kind is list and type(posted) is list:  # by far the most: without the slow questions below
        return _in_sequence(posted, arrived)
    names = _fields(kind)
    if names is not None:
        return _in_fields(posted, arrived, names) if type(posted) is kind else ""
    if isinstance(arrived, Mapping) and isinstance(posted, Mapping):
        return _in_mapping(posted, arrived)
    if isinstance(arrived, AbstractSet):
        same = isinstance(posted, AbstractSet | Sequence | deque) and len(posted) == len(arrived)
        return None if same and arrived == set(posted) else ""
    if _is_sequence(arrived) and (_is_sequence(posted) or isinstance(posted, AbstractSet)):
        return _in_sequence(posted, arrived)
    return None if _same(posted, arrived) else ""


def _in_fields(posted: Any, arrived: Any, names: tuple[str, ...]) -> str | None:
    for name in names:
        one, other = getattr(posted, name, _ABSENT), getattr(arrived, name, _ABSENT)
        if one is other:
            continue
        kind = type(one)
        if kind in _ATOMS and kind is type(other) and one == other:
            continue
        if (found := difference(one, other)) is not None:
            return f".{name}{found}"
    extra = getattr(posted, "__pydantic_extra__", None)
    return _in_mapping(extra, arrived.__pydantic_extra__ or {}) if extra else None


def _in_sequence(posted: Any, arrived: Any) -> str | None:
    if len(posted) != len(arrived):
        return ""
    for place, (one, other) in enumerate(zip(posted, arrived, strict=True)):
        kind = type(one)
        if kind in _ATOMS and kind is type(other) and one == other:
            continue
        # The place is named from inside out: nearly always nothing is found.
        if (found := difference(one, other)) is not None:
            return f"[{place}]{found}"
    return None


def _in_mapping(posted: Mapping[Any, Any], arrived: Mapping[Any, Any]) -> str | None:
    if len(posted) != len(arrived):
        return ""
    for key, value in posted.items():
        # JSON's keys are texts, unless the annotation names their type.
        stored = (
            key if key in arrived else next(iter(msgspec.to_builtins({key: None}, str_keys=True)))
        )
        if stored not in arrived:
            return ""
        if (found := difference(value, arrived[stored])) is not None:
            return f"[…]{found}"  # keys may be somebody's data
    return None


def _same(posted: Any, arrived: Any) -> bool:
    """Whether two values are the same that are neither models nor collections on both sides."""
    kind = type(arrived)
    if posted is arrived or bool(arrived == posted):
        return True
    if type(posted) is kind and "__eq__" not in _defined(kind) and hasattr(posted, "__dict__"):
        return difference(vars(posted), vars(arrived)) is None
    if kind not in _JSON:
        return False
    try:
        stored = msgspec.to_builtins(posted, str_keys=True, enc_hook=_opened)
    except (msgspec.MsgspecError, TypeError, ValueError, NotImplementedError):
        return False
    return bool(stored == arrived)


def _defined(kind: type) -> set[str]:
    return {name for base in kind.__mro__[:-1] for name in vars(base)}


def _opened(value: Any) -> object:
    """A pydantic model with the values of all its fields; nothing can write its secrets then."""
    if not hasattr(type(value), "model_dump"):
        raise TypeError(type(value).__qualname__)
    dumped = value.model_dump(round_trip=True, warnings=False)
    if isinstance(dumped, dict) and not set(type(value).model_fields) <= set(dumped):
        raise TypeError(f"{type(value).__qualname__} leaves a field out")
    return dumped


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence | deque) and not isinstance(
        value, str | bytes | bytearray | memoryview
    )


def _fields(kind: type) -> tuple[str, ...] | None:
    """The fields of an event type, with those that its `==` leaves out; None for any other type."""
    try:
        return _names[kind]
    except KeyError:
        pass
    names: tuple[str, ...] | None = None
    if issubclass(kind, msgspec.Struct):
        names = kind.__struct_fields__
    elif hasattr(kind, "__attrs_attrs__"):
        names = tuple(attribute.name for attribute in kind.__attrs_attrs__)
    elif is_dataclass(kind):
        names = tuple(field.name for field in dataclass_fields(kind))
    elif hasattr(kind, "model_dump"):
        models: Any = kind
        names = (*models.model_fields, *getattr(models, "__private_attributes__", ()))
    _names[kind] = names
    return names


_SIMPLE = (
    *(inspect.NoneType, inspect.BoolType, inspect.IntType, inspect.FloatType, inspect.StrType),
    *(inspect.DateTimeType, inspect.DateType, inspect.TimeType, inspect.TimeDeltaType),
    *(inspect.UUIDType, inspect.DecimalType, inspect.EnumType, inspect.LiteralType),
)


def is_simple(kind: type) -> bool:
    """Whether one event of `kind` shows that all arrive: another that differs raises when read.

    True if its fields hold single values, and reading it runs no code of the class.
    """
    if hasattr(kind, "__post_init__") or hasattr(kind, "__attrs_post_init__"):
        return False
    # Their names are private, so they are left out.
    if any(attribute.name.startswith("_") for attribute in getattr(kind, "__attrs_attrs__", ())):
        return False
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.DataclassType | inspect.StructType):
        return False
    return all(_is_single(field.type) for field in info.fields)


def _is_single(info: inspect.Type) -> bool:
    if isinstance(info, inspect.UnionType):
        return all(_is_single(one) for one in info.types)
    return isinstance(info, _SIMPLE)

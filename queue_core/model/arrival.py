"""Whether a posted event arrives: its decoded copy is compared with it before it is written.

`==` is not enough: a class may leave fields out of it, or take a subclass for its base, or its base
for a subclass. And it is too strict for dates in an hour that clocks pass twice, or leave out.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Flag
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect

_ATOMS = frozenset(
    {type(None), bool, int, float, str, bytes, date, timedelta, Decimal, UUID},
)
"""Types whose `==` compares all that there is."""
_CLOCK = (datetime, time)
_PARTLY = frozenset({float, *_CLOCK})
"""Types of which JSON has not all values."""
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
    if isinstance(arrived, _CLOCK) and isinstance(posted, _CLOCK):
        return None if _is_same_time(posted, arrived) else ""
    names = _fields(kind)
    if names is not None:
        return _in_fields(posted, arrived, names) if type(posted) is kind else ""
    if isinstance(arrived, Mapping) and isinstance(posted, Mapping):
        return _in_mapping(posted, arrived)
    if isinstance(arrived, AbstractSet):
        same = isinstance(posted, AbstractSet | Sequence | deque) and len(posted) == len(arrived)
        return None if same and _is_same_set(posted, arrived) else ""
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


def _is_same_set(posted: Collection[Any], arrived: AbstractSet[Any]) -> bool:
    by_value = {other: other for other in arrived}
    for one in posted:
        found = by_value.get(_key(one), _ABSENT)
        if type(one) in _ATOMS:
            if found is _ABSENT:
                return False
        elif (found is _ABSENT or difference(one, found) is not None) and not any(
            difference(one, other) is None for other in arrived
        ):
            return False
    return True


def _in_mapping(posted: Mapping[Any, Any], arrived: Mapping[Any, Any]) -> str | None:
    if len(posted) != len(arrived):
        return ""
    for key, value in posted.items():
        # JSON's keys are texts, unless the annotation names their type.
        stored = _key(key)
        if stored not in arrived:
            stored = next(iter(msgspec.to_builtins({key: None}, str_keys=True)))
        if stored not in arrived:
            return ""
        if (found := difference(value, arrived[stored])) is not None:
            return f"[…]{found}"  # keys may be somebody's data
    return None


def _is_same_time(posted: Any, arrived: Any) -> bool:
    """Whether two dates are the same instant, or two without a zone show the same.

    JSON has no `fold` (PEP 495), and `==` leaves it out.
    """
    # A time of day in a zone has no offset: `==` takes it for one without a zone.
    if (posted.tzinfo is None) != (arrived.tzinfo is None):
        return False
    equal = posted == arrived and posted.fold == arrived.fold
    return bool(equal or _pinned(posted) == _pinned(arrived))


def _pinned(clock: Any) -> Any:
    """A date or time with its offset in place of its zone.

    Where an offset depends on `fold`, `==` and a hash of two zones never find the same instant.
    """
    offset = clock.utcoffset()
    return clock if offset is None else clock.replace(tzinfo=timezone(offset))


def _key(value: Any) -> Any:
    return _pinned(value) if isinstance(value, _CLOCK) else value


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


_SINGLE: dict[type[inspect.Type], type] = {
    inspect.NoneType: type(None),
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.DateTimeType: datetime,
    inspect.DateType: date,
    inspect.TimeType: time,
    inspect.TimeDeltaType: timedelta,
    inspect.UUIDType: UUID,
    inspect.DecimalType: Decimal,
}


def fit(kind: type) -> Callable[[object], bool] | None:
    """A test of events of `kind`: those that pass arrive. None if there is no such test.

    One event of `kind` must have arrived before.

    It is asked for each post, so it looks at little but types: each field declares single values,
    and holds exactly what it declares. Reading such an event runs no code of its class.
    """
    if hasattr(kind, "__post_init__") or hasattr(kind, "__attrs_post_init__"):
        return None
    # Their names are private, so they are left out.
    if any(attribute.name.startswith("_") for attribute in getattr(kind, "__attrs_attrs__", ())):
        return None
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.DataclassType | inspect.StructType):
        return None
    kinds = {field.name: _single(field.type) for field in info.fields}
    if not all(kinds.values()):
        return None
    fields = [
        (name, declared, not declared.isdisjoint(_PARTLY)) for name, declared in kinds.items()
    ]

    def fits(event: object) -> bool:
        for name, declared, partly in fields:
            value = getattr(event, name)
            if type(value) not in declared or (partly and not _arrives(value)):
                return False
        return True

    return fits


def _arrives(value: Any) -> bool:
    """Whether a value arrives in a field of its type.

    JSON has finite numbers alone, offsets in whole minutes, and none of a time of day in a zone.
    """
    if type(value) is float:
        return isfinite(value)
    zone = getattr(value, "tzinfo", None)
    return zone is None or zone is UTC


def _single(info: inspect.Type) -> frozenset[type]:
    """The types of which all values arrive in a field of this type; empty if there are others."""
    if isinstance(info, inspect.UnionType):
        found = [_single(one) for one in info.types]
        return frozenset().union(*found) if all(found) else frozenset()
    if isinstance(info, inspect.EnumType):
        # Flags have values without a name.
        return frozenset() if issubclass(info.cls, Flag) else frozenset({info.cls})
    kind = _SINGLE.get(type(info))
    # Any other has constraints.
    return frozenset({kind}) if kind is not None and info == type(info)() else frozenset()

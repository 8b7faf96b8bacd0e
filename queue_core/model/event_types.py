"""The names of event types.

A stored name selects a type only among those that this process has registered or defined as their
subclasses; no name from a row is ever imported.
"""

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import msgspec

from queue_core.errors import (
    ConfigurationError,
    InvalidPostError,
    PayloadNotSerialisableError,
)
from queue_core.model.after_rules import AfterRules
from queue_core.model.names import name_fault
from queue_core.model.validators import Validators
from queue_core.runtime.lock import Lock
from queue_core.runtime.shown import shown
from sql.tables import CLASS_NAME_LENGTH


class EventTypes:
    """The event types that this process knows, by name. Safe to use from several threads.

    A type is a dataclass, an attrs class, a msgspec Struct or a pydantic model; a name without a
    type stands for plain dicts.
    """

    def __init__(self) -> None:
        self._types: dict[str, type | None] = {}
        self._names: dict[type, str] = {}
        self._lock = Lock()
        self.validators = Validators()
        self.after_rules = AfterRules()

    def register(self, event_type: Any, name: str | None = None) -> str:
        """Make `event_type` known under `name` (default: its `__name__`), and return that name.

        A name that stood for plain dicts gets the type. The same class defined anew (a notebook
        cell run twice) takes the place of the old one. Raises ConfigurationError if another type
        has the name, or if the type or the name is none that can be stored.
        """
        if not isinstance(event_type, type) or not is_event_type(event_type):
            called = event_type.__qualname__ if isinstance(event_type, type) else shown(event_type)
            raise ConfigurationError(
                f"{called} can't be an event type. Allowed: a dataclass, an attrs class, a msgspec "
                "Struct, a pydantic model; for plain dicts a name.",
                key="event_type",
                value=called,
            )
        name = _checked_name(event_type.__name__ if name is None else name)
        with self._lock:
            known = self._types.get(name)
            if known is not None and _path(known) != _path(event_type):
                raise ConfigurationError(
                    f"The event name {name!r} belongs to {_path(known)}, so {_path(event_type)} "
                    "can't have it. Register one of them under a name of its own: "
                    "bus.register_event(event_type, name=…).",
                    key="event_type",
                    value=name,
                    class_name=name,
                )
            self._types[name] = event_type
            self._names.setdefault(event_type, name)
        return name

    def register_name(self, name: str) -> str:
        """Make `name` known for plain dicts, and return it; a type that has the name keeps it.

        Raises ConfigurationError.
        """
        name = _checked_name(name)
        with self._lock:
            self._types.setdefault(name, None)
        return name

    def knows(self, name: str) -> bool:
        """Whether `name` is registered, or is a subclass of a registered type."""
        return name in self._types or self._find_subclass(name) is not None

    def type_of(self, name: str) -> type | None:
        """The type to decode `name` to; None for a plain dict and for an unknown name."""
        return self._types.get(name) or self._find_subclass(name)

    def name_of(self, event: object, event_name: str | None = None) -> str:
        """The name to store `event` under; registers its type if it is new.

        The name of a plain dict becomes known by subscribing to it, not by posting: a process
        that only posts can't handle it.

        Raises InvalidPostError for a plain dict without an `event_name`,
        PayloadNotSerialisableError for an object of no event type, ConfigurationError if the name
        belongs to another type.
        """
        event_type = type(event)
        if event_name is None:
            name = self._names.get(event_type)
            if name is not None:
                return name
            if isinstance(event, dict):
                raise InvalidPostError(
                    "A plain dict has no event type: give its event_name. Nothing was written.",
                    key="event_name",
                )
            _require_event(event)
            return self.register(event_type)
        if isinstance(event, dict):
            known = self._types.get(event_name)
            if known is not None:
                raise ConfigurationError(
                    f"The event name {event_name!r} belongs to {_path(known)}: post an instance of "
                    "it, or give the dict a name of its own. Nothing was written.",
                    key="event_name",
                    value=event_name,
                    class_name=event_name,
                )
            return event_name
        _require_event(event)
        if event_name in self._types and self._types[event_name] is None:
            # Its handlers subscribed by name and expect a dict.
            return event_name
        return self.register(event_type, event_name)

    def names(self) -> frozenset[str]:
        """All names that `knows` answers True for."""
        with self._lock:
            registered = list(self._types.items())
        subclasses = (found for _, known in registered if known for found in _subclasses(known))
        return frozenset(name for name, _ in registered) | frozenset(
            found.__name__ for found in subclasses
        )

    def _find_subclass(self, name: str) -> type | None:
        with self._lock:
            registered = list(self._types.values())
        # The last one: `dataclass(slots=True)` leaves the class that it replaced among the
        # subclasses.
        found: dict[str, type] = {
            _path(subclass): subclass
            for known in registered
            if known is not None
            for subclass in _subclasses(known)
            if subclass.__name__ == name
        }
        if not found:
            return None
        if len(found) > 1:
            raise ConfigurationError(
                f"The event name {name!r} fits {' and '.join(sorted(found))}. "
                "Register each under a name of its own: bus.register_event(event_type, name=…).",
                key="event_type",
                value=name,
                class_name=name,
            )
        (subclass,) = found.values()
        self.register(subclass, name)
        return subclass


def is_event_type(event_type: type) -> bool:
    """Whether instances can be posted by themselves: dataclass, attrs, msgspec or pydantic."""
    return (
        is_dataclass(event_type)
        or hasattr(event_type, "__attrs_attrs__")
        or issubclass(event_type, msgspec.Struct)
        or hasattr(event_type, "model_validate")
    )


def _checked_name(name: Any) -> str:
    # Each beat tells others of the names: one that can't be sent would end the lease.
    fault = name_fault(name, CLASS_NAME_LENGTH)
    if fault:
        raise ConfigurationError(
            f"{shown(name)} can't be the name of an event type: allowed are {fault}.",
            key="event_type",
            value=shown(name),
        )
    return str.__str__(name)


def _require_event(event: object) -> None:
    event_type = type(event)
    if isinstance(event, type):
        raise PayloadNotSerialisableError(
            f"{event.__qualname__} not posted: it is a class. Nothing was written. Post an "
            "instance of it.",
            class_name=event.__name__,
        )
    if not is_event_type(event_type):
        raise PayloadNotSerialisableError(
            f"{event_type.__qualname__} not posted: it is no event type. Nothing was written. Post "
            "a dataclass, an attrs class, a msgspec Struct, a pydantic model, or a plain dict "
            "with event_name.",
            class_name=event_type.__name__,
        )


def _path(event_type: type) -> str:
    return f"{event_type.__module__}.{event_type.__qualname__}"


def _subclasses(event_type: type) -> Iterator[type]:
    subclasses: list[type] = event_type.__subclasses__()
    for subclass in subclasses:
        yield subclass
        yield from _subclasses(subclass)

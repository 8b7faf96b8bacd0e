"""Names that go with 1.0: each still works, and warns."""

from __future__ import annotations

import sys
import warnings
from operator import attrgetter
from types import FrameType
from typing import Generic, Never, Self, TypeVar, overload

T = TypeVar("T")

_LIBRARY = frozenset(
    {
        *("queue_core", "bus", "notifications", "work_queue", "history_pipeline", "stickybus"),
        *("pydantic", "pydantic_core"),
    }
)
"""Packages whose frames are no user's call."""


def deprecated(old: str, new: str) -> None:
    """Warn the user's line that `old` is called `new` now."""
    message = f"{old} will be removed in 1.0: use {new}"
    warnings.warn(message, DeprecationWarning, stacklevel=_users_level())


def _users_level() -> int:
    """The distance from `deprecated` to the first frame that is not the library's."""
    level = 1
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 -- as the warnings module itself does
    while frame is not None:
        level += 1
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARY:
            break
        frame = frame.f_back
    return level


class OldName(Generic[T]):
    """A former attribute: reading it warns, and reads `path`, such as `node.lease_seconds`."""

    def __init__(self, path: str, new: str = "") -> None:
        self.new = new or path
        self.path = path
        self._find = attrgetter(path)
        self.__doc__ = f"Deprecated: {self.new}."
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        deprecated(self._name, self.new)
        found: T = self._find(instance)
        return found

    def __set__(self, instance: object, value: Never) -> None:
        raise AttributeError(f"{self._name} can't be set")

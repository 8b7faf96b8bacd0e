"""Exceptions from outside, as a signal raises them, at a chosen place of a call."""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterator
from enum import Enum, auto
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import tests
from queue_core.runtime.lock import Lock

_ROOT = str(Path(tests.__file__).parents[1])
_OURS = tuple(
    f"{_ROOT}/{package}/" for package in ("bus", "notifications", "work_queue", "queue_core", "sql")
)


class InterruptedHereError(BaseException):
    """What is raised; no code catches it by its name."""


class Places(Enum):
    """The places of exceptions: before a line or an instruction, or at a function's end.

    At the end, the result of the function is lost.
    """

    LINES = auto()
    """Each line of our own code."""
    INSTRUCTIONS = auto()
    """Each instruction of our own code."""


class Interrupt:
    """Counts the places that a call passes, and raises at one of them.

    `among`: only in these functions, whosever they are.
    """

    def __init__(
        self, places: Places, at: int | None = None, among: Collection[CodeType] = ()
    ) -> None:
        self._places = places
        self._at = at
        self._among = frozenset(among)
        self.passed = 0
        """How many places, so far."""
        self.where = ""
        """Where it was raised."""

    def during(self, call: Callable[[], Any]) -> Any:
        """Run `call`. Raises InterruptedHereError at its place, or what that is turned into."""
        before = sys.gettrace()
        # This name keeps the method alive. Without it, Python once called another object instead.
        enter = self._enter
        sys.settrace(enter)
        try:
            return next(_apart(call))
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        code = frame.f_code
        if code not in self._among if self._among else not code.co_filename.startswith(_OURS):
            return None
        frame.f_trace_opcodes = self._places is Places.INSTRUCTIONS
        return self._pass

    def _pass(self, frame: FrameType, event: str, _argument: Any) -> Any:
        wanted = "opcode" if self._places is Places.INSTRUCTIONS else "line"
        if event == "line" and wanted == "opcode":
            frame.f_trace_opcodes = (
                True  # from Python 3.12 on another thread in the same code ends it
            )
        # A generator that yields is no end, and the interpreter raises nothing there.
        yields = event == "return" and frame.f_code.co_flags & inspect.CO_GENERATOR
        if event not in {wanted, "return"} or yields or frame.f_lasti in _exits(frame.f_code):
            return self._pass
        self.passed += 1
        if self.passed - 1 == self._at:
            self.where = (
                f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname} {event}"
            )
            raise InterruptedHereError
        return self._pass


def _apart(call: Callable[[], Any]) -> Iterator[Any]:
    """Run `call` in a generator.

    Python keeps the handled exceptions of a generator apart from those of the thread. An exception
    that cuts off a handler may leave another one there. The thread would keep it, and its
    traceback, as the context of all later exceptions.
    """
    yield call()


def was_interrupted(error: BaseException) -> bool:
    """Return whether `error` is the exception that was raised, or was caused by it.

    SQLAlchemy turns some into failed assertions or missing attributes.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, InterruptedHereError):
        cause = cause.__context__
    return cause is not None


@functools.cache
def _exits(code: CodeType) -> frozenset[int]:
    """Return the offsets at which the interpreter never raises anything.

    They are between the body of a `with` and its `__exit__`, and where `Lock` is entered.
    """
    found = set[int]()
    steps = list(dis.get_instructions(code))
    if code is Lock.__enter__.__code__:
        found |= {one.offset for one in steps if one.opname == "RETURN_VALUE"}
    for place in range(len(steps)):
        nothing = steps[place : place + 3]
        if len(nothing) == 3 and all(
            one.opname == "LOAD_CONST" and one.argval is None for one in nothing
        ):
            before = place
            while steps[before - 1].opname in {"NOP", "SWAP"}:
                before -= 1
            found |= {one.offset for one in steps[before : place + 5]}
    return frozenset(found)

"""Calls that are cut off before one of their statements."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from sqlalchemy import Engine, event

from tests.contract.interrupted.interrupts import InterruptedHereError


def cut_at_each_statement(
    engine: Engine, call: Callable[[], object], check: Callable[[], None]
) -> int:
    """Cut `call` off before its first statement, then before its second, until it sends no more.

    `check` looks at what each has left. The last call is whole; returns how many statements it
    sent.
    """
    place = 0
    while _is_cut(engine, call, place):
        check()
        place += 1
    return place


def _is_cut(engine: Engine, call: Callable[[], object], place: int) -> bool:
    """Call it, and raise before all statements from this place on; return whether there is one."""
    sent = 0

    def interrupt(*_: object) -> None:
        nonlocal sent
        sent += 1
        if sent > place:
            raise InterruptedHereError

    event.listen(engine, "before_cursor_execute", interrupt)
    try:
        with suppress(InterruptedHereError):
            call()
    finally:
        event.remove(engine, "before_cursor_execute", interrupt)
    return sent > place

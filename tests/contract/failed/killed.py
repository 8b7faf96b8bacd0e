"""A process that changes all entries that match and is killed by SIGKILL at a point it is told.

killed.py POINT CHANGE URL
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from queue_core.reading import bulk
from sql.statements.entries import Statements
from sql.statements.history import History
from stickybus import PersistentBus

BATCH = 10


def die() -> None:
    """End as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_within(place: type, name: str, calls: int) -> None:
    """Die after the given number of calls of a statement, before its transaction commits."""
    former, done = getattr(place, name), 0

    def changed(*arguments: Any, **options: Any) -> Any:
        nonlocal done
        answer = former(*arguments, **options)
        done += 1
        if done == calls:
            die()
        return answer

    setattr(place, name, changed)


def main(point: str, change: str, url: str) -> None:
    """Do a change as far as its point."""
    bulk.BATCH = BATCH
    bus = PersistentBus(url)

    def progress(done: int, _total: int) -> None:
        if point == "between" and done == 2 * BATCH:
            die()

    if point == "within":
        if change == "retry_all":
            die_within(History, "replay", calls=BATCH + 5)
        elif change == "discard_all":
            die_within(History, "take_turn", calls=BATCH + 5)
        else:
            die_within(Statements, "lock_available", calls=2)
    getattr(bus, change)(progress=progress)
    raise AssertionError(f"the process is still alive {point} batches")


if __name__ == "__main__":
    main(*sys.argv[1:])

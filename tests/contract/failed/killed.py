"""A process that changes all entries that match and is killed by SIGKILL at a point it is told.

killed.py POINT CHANGE URL
"""

from __future__ import annotations

import sys

from queue_core.reading import bulk
from sql.statements.entries import Statements
from sql.statements.history import History
from stickybus import PersistentBus
from tests.killed import die, die_after

BATCH = 10


def main(point: str, change: str, url: str) -> None:
    """Do a change as far as its point."""
    bulk.BATCH = BATCH
    bus = PersistentBus(url)

    def progress(done: int, _total: int) -> None:
        if point == "between" and done == 2 * BATCH:
            die()

    if point == "within":
        if change == "retry_all":
            die_after(History, "replay", calls=BATCH + 5)
        elif change == "discard_all":
            die_after(History, "take_turn", calls=BATCH + 5)
        else:
            die_after(Statements, "lock_available", calls=2)
    getattr(bus, change)(progress=progress)
    raise AssertionError(f"the process is still alive {point} batches")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The bare driver in its own process, which does what it reads, and answers.

    python -m benchmarks.bare_process URL

It answers each line of its input with a line of JSON, and ends with its input.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta

from sqlalchemy import make_url

from benchmarks.answering import answer
from benchmarks.floor import CLAIM, Bare, BarePostgreSQL, bare

LEASE_SECONDS = 300.0


class Node:
    """It claims and moves entries, and does nothing else."""

    def __init__(self, connection: Bare) -> None:
        self._connection = connection

    def drain(self) -> dict[str, float]:
        """Claim and move until nothing is left: how many it moved, from when to when."""
        connection, now = self._connection, datetime.now(UTC)
        bound = connection.date(now)
        until = connection.date(now + timedelta(seconds=LEASE_SECONDS))
        moved, first = 0, time.perf_counter()
        while ids := connection.claim(CLAIM, bound, until):
            moved += connection.move(ids, bound)
        return {"moved": moved, "first": first, "last": time.perf_counter()}

    def listen(self) -> None:
        """Be woken by what is posted from now on (PostgreSQL)."""
        self._posted().listen()

    def claim(self, entries: str) -> dict[int, float]:
        """Claim so many entries, each as soon as it is posted. Returns the times, by id."""
        connection, claimed_at = self._posted(), dict[int, float]()
        while len(claimed_at) < int(entries):
            connection.wait_for_post()
            now = datetime.now(UTC)
            bound = connection.date(now)
            until = connection.date(now + timedelta(seconds=LEASE_SECONDS))
            for record_id in connection.claim(CLAIM, bound, until):
                claimed_at[record_id] = time.perf_counter()
        return claimed_at

    def _posted(self) -> BarePostgreSQL:
        if not isinstance(self._connection, BarePostgreSQL):
            raise TypeError("only PostgreSQL wakes who listens")
        return self._connection


def main(url: str) -> None:
    """Answer until the input ends."""
    with bare(make_url(url)) as connection:
        node = Node(connection)
        answer({"drain": node.drain, "listen": node.listen, "claim": node.claim})


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A node in its own process, which answers questions about itself.

    python -m benchmarks.bus_process URL MODE TIMED

It reads a word a line from standard input, `threads` with a number, and answers each with a line of
JSON; it ends with its input.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from sqlalchemy.event import listen

from benchmarks.answering import answer
from benchmarks.workload import Ticked
from bus.persistent import PersistentBus
from queue_core.model.config import BusConfig


class Node:
    """A bus whose handler counts, and notes when it was called if `timed`."""

    def __init__(self, url: str, mode: str, *, timed: bool) -> None:
        self._url = url
        self._mode = mode
        self._timed = timed
        self._times: dict[int, float] = {}
        self._bus = self._made(BusConfig(mode=mode))
        self.reset()
        self._sent = Counter[str]()

    def _made(self, config: BusConfig) -> PersistentBus:
        bus = PersistentBus(self._url, config, metrics_registry=CollectorRegistry())
        bus.subscribe(Ticked, self._note if self._timed else self._count, name="benchmark")
        return bus

    def threads(self, count: str) -> None:
        """Use `count` handler threads from the next start on."""
        self._bus.close()
        self._bus = self._made(BusConfig(mode=self._mode, handler_threads=int(count)))

    def _count(self, _event: Ticked) -> None:
        self._handled = next(self._counted)
        if self._handled == 1:
            self._first = time.perf_counter()

    def _note(self, event: Ticked) -> None:
        self._times[event.number] = time.perf_counter()
        self._count(event)

    def listen(self) -> None:
        """Count sent statements and commits: statements that somebody listens to take longer."""
        for sent in ("before_cursor_execute", "commit", "rollback"):
            # Arguments are SQLAlchemy's, of each event different ones.
            for engine in self._bus._engine.database.engines:
                listen(engine, sent, lambda *_, sent=sent: self._sent.update([sent]))

    def reset(self) -> None:
        """Count from zero."""
        self._counted = itertools.count(1)
        self._handled = 0
        self._first = 0.0

    def start(self) -> None:
        """Begin to handle."""
        self._bus.start()

    def stop(self) -> None:
        """Leave in good order; it may start again."""
        self._bus.stop()

    def times(self) -> dict[int, float]:
        """When each event's handler started."""
        return self._times

    def usage(self) -> dict[str, Any]:
        """The entries handled so far, and their seconds."""
        status = Path("/proc/self/status").read_text().splitlines()
        return {
            "handled": self._handled,
            "held": len(self._bus._engine.lifecycle.ledger),
            "first": self._first,
            "statements": self._sent["before_cursor_execute"],
            "commits": self._sent["commit"],
            "cpu_seconds": time.process_time(),
            "at": time.perf_counter(),
            "rss_mb": next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
            / 1024,
            "peak_rss_mb": next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
            / 1024,
        }


def main(url: str, mode: str, timed: str) -> None:
    """Answer until the input ends."""
    node = Node(url, mode, timed=timed == "timed")
    commands: dict[str, Callable[..., Any]] = {
        "listen": node.listen,
        "reset": node.reset,
        "start": node.start,
        "stop": node.stop,
        "threads": node.threads,
        "times": node.times,
        "usage": node.usage,
    }
    answer(commands)


if __name__ == "__main__":
    main(*sys.argv[1:])

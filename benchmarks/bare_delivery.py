"""The least that a delivery takes: statements of the driver's, and wake-ups of threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from benchmarks.databases import Target
from benchmarks.floor import Bare, bare
from benchmarks.workload import WARM_UP, verify_counts


def bare_delivery_cpu_seconds(target: Target, entries: int) -> float:
    """CPU of an entry's delivery, from its commit to its outcome's, one entry at a time.

    As in a node, one thread claims, one would handle, and one moves the entry to history; they wake
    each other. Nothing else is done.
    """
    spent = list[float]()
    with (
        target.fresh() as url,
        bare(url) as poster,
        bare(url) as claimer,
        bare(url) as finisher,
    ):
        now = datetime.now(UTC)
        bound, until = poster.date(now), poster.date(now + timedelta(seconds=300))
        works: list[Callable[[Any], Any]] = [
            lambda _: claimer.claim(1, bound, until),
            lambda ids: ids,
            lambda ids: finisher.move(ids, bound),
        ]
        queues = [SimpleQueue[Any]() for _ in range(len(works) + 1)]

        def stage(place: int) -> None:
            def work(times: int) -> None:
                for _ in range(times):
                    queues[place + 1].put(works[place](queues[place].get()))

            work(WARM_UP)
            start = time.thread_time()
            work(entries)
            spent.append(time.thread_time() - start)

        threads = [threading.Thread(target=stage, args=(place,)) for place in range(len(works))]
        for thread in threads:
            thread.start()
        names = list(poster.rows[0])
        row = poster.encoded(poster.main, poster.rows[:1])[0]
        for number in range(WARM_UP + entries):
            poster.insert_one(names, row)
            queues[0].put(number)
            queues[-1].get()
        for thread in threads:
            thread.join()
        verify_counts(url, poster.main.name, waiting=0, ended=WARM_UP + entries)
    return sum(spent) / entries


class BareDelivery:
    """Delivers beside callers' transactions: no claim, no lease, no look for commits.

    One thread would handle, another moves the entries to history. With a pause, it lets entries
    gather for so many seconds, and moves them together.
    """

    def __init__(self, finisher: Bare, pause_seconds: float) -> None:
        self._finisher = finisher
        self._pause_seconds = pause_seconds
        self._bound = finisher.date(datetime.now(UTC))
        self._committed = SimpleQueue[int | None]()
        self._handled = SimpleQueue[int | None]()
        works = self._handle, self._finish
        self._threads = [threading.Thread(target=work) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.wait()

    def tell(self, record_id: int) -> None:
        """An entry is committed, which is `IN_PROCESSING`, and has the finisher as its owner."""
        self._committed.put(record_id)

    def wait(self) -> None:
        """Return once all that was told is moved. Nothing may be told any more."""
        self._committed.put(None)
        for thread in self._threads:
            thread.join()

    def _handle(self) -> None:
        while (record_id := self._committed.get()) is not None:
            self._handled.put(record_id)
        self._handled.put(None)

    def _finish(self) -> None:
        goes_on = True
        while goes_on:
            found = [self._handled.get()]
            if self._pause_seconds:
                time.sleep(self._pause_seconds)
            while not self._handled.empty():
                found.append(self._handled.get())
            ids = [one for one in found if one is not None]
            goes_on = len(ids) == len(found)
            if ids:
                self._finisher.move(ids, self._bound)

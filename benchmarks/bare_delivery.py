"""The least CPU of a delivery: two statements of the driver's, three wake-ups."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any

from benchmarks.databases import Target
from benchmarks.floor import bare
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

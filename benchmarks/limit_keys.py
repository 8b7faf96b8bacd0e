"""Latencies of one key beside thousands of keys that are at their limit, and without them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

from benchmarks.databases import Target
from benchmarks.measurement import Measurement, percentile
from benchmarks.workload import (
    LOAD_BATCH,
    Run,
    Sizes,
    Ticked,
    alternating,
    paced,
    run_on,
    until,
)
from queue_core.model.lanes import AFTER_KEYED, KEYED
from queue_core.model.posting import Posting

RATE = 100
"""Entries of the free key in a second."""
OF_EACH = 3
"""Entries of each other key: one starts, and the others wait for longer than all this takes."""
DEADLINE_SECONDS = 300.0


def limit_keys(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """From the post of a free key to its start, with 10,000 saturated keys, and with none."""
    keys, entries = sizes.entries(10_000), sizes.entries(RATE * 30 // sizes.rounds)
    works = {
        "alone": lambda: _latencies(target, keys=0, entries=entries),
        "beside saturated keys": lambda: _latencies(target, keys=keys, entries=entries),
    }
    found = alternating(sizes.rounds, works)
    settings = {"entries": entries, "rate": RATE, "keys": keys, "rounds": sizes.rounds}
    p99 = dict[str, float]()
    for metric, rounds in found.items():
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            p99[metric] = statistics.median(percentile(one, share) * 1e3 for one in rounds)
            yield Measurement(
                "limit-keys",
                target.name,
                f"post to start of a free key, {name}, {metric}",
                p99[metric],
                "ms",
                settings,
            )
    ratio = p99["beside saturated keys"] / p99["alone"]
    yield Measurement(
        "limit-keys", target.name, "p99 beside saturated keys, to alone", ratio, "x", settings
    )


def _latencies(target: Target, *, keys: int, entries: int) -> list[float]:
    """Seconds from the start of each post to that of its handler."""
    began, latencies = dict[int, float](), list[float]()
    with run_on(target) as run:

        def handle(event: Ticked) -> None:
            if event.number in began:
                latencies.append(time.perf_counter() - began[event.number])

        run.bus.limit(rate_per_key=1, per=timedelta(days=1))
        run.bus.subscribe(Ticked, handle, name="benchmark")
        run.bus.start()
        _saturate(run, keys)
        for number in paced(entries, RATE):
            began[number] = time.perf_counter()
            # Each has another key, so that no limit holds it up.
            run.bus.post(Ticked(number), limit_key=f"free-{number}")
        until(lambda: len(latencies) == entries, "all are handled", DEADLINE_SECONDS)
    return latencies


def _saturate(run: Run, keys: int) -> None:
    """Post entries of keys, and wait until all but the first of each wait for its rate."""
    postings = [
        Posting(event=Ticked(-1), limit_key=f"key-{number}")
        for _ in range(OF_EACH)
        for number in range(keys)
    ]
    for start in range(0, len(postings), LOAD_BATCH):
        run.bus.post_many(postings[start : start + LOAD_BATCH])
    store = run.bus._engine.store
    counts = partial(
        store.statements.lane_counts, lane=KEYED, end=AFTER_KEYED, until=None, limit=len(postings)
    )

    def all_wait() -> bool:
        waiting: int = sum(row.entries for row in store.database.fetch(counts))
        return waiting == keys * (OF_EACH - 1)

    ledger = run.bus._engine.lifecycle.ledger
    until(all_wait, "all but the first of each key wait", DEADLINE_SECONDS)
    until(lambda: not len(ledger), "all outcomes are written", DEADLINE_SECONDS)

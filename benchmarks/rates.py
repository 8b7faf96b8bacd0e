"""Entries that one process posts and handles a second, beside the bare driver's rate."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from benchmarks.databases import Target
from benchmarks.floor import CLAIM, bulk_rate, insert_rate, move_rate
from benchmarks.growth import QueueDelivery
from benchmarks.measurement import Measurement
from benchmarks.workload import (
    FLOOR,
    POST_MANY,
    WARM_UP,
    Run,
    Sizes,
    Ticked,
    alternating,
    compared,
    median_ratio,
    run_on,
    verify_counts,
)
from queue_core.model.config import BusConfig
from queue_core.model.posting import Posting
from queue_core.model.priority import NORMAL, Priority

QUEUES = (1, 4, 16, 64)
PRIORITIES: tuple[Priority, ...] = ("normal", "high", "urgent")
GENEROUS = 10_000
"""A limit above all that a node holds."""


def post(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Post one event per commit: alone, and while the same process handles them."""
    entries = sizes.entries(10_000)
    works = {
        FLOOR: lambda: insert_rate(target, entries),
        "post rate": lambda: _post(target, entries, delivering=False),
        "post rate while delivering": lambda: _post(target, entries, delivering=True),
    }
    yield from compared("post", target, sizes, works, entries=entries)


def _post(target: Target, entries: int, *, delivering: bool) -> float:
    with run_on(target) as run:
        if delivering:
            run.start()
        run.posted += [run.bus.post(Ticked(number)) for number in range(WARM_UP)]
        start = time.perf_counter()
        run.posted += [run.bus.post(Ticked(number)) for number in range(entries)]
        rate = entries / (time.perf_counter() - start)
        if delivering:
            run.wait()
        run.verify(delivered=delivering)
    return rate


def post_many(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Post events in batches of 100, one commit a batch."""
    entries = sizes.entries(100_000, POST_MANY)
    works = {
        FLOOR: lambda: bulk_rate(target, entries),
        "post_many rate": lambda: bulk_post_rate(target, entries),
    }
    yield from compared("post-many", target, sizes, works, entries=entries, batch=POST_MANY)


def bulk_post_rate(target: Target, entries: int) -> float:
    """Entries a second by `post_many` of 100."""
    with run_on(target) as run:
        run.load(POST_MANY)
        start = time.perf_counter()
        _post_batches(run, entries)
        rate = (len(run.posted) - POST_MANY) / (time.perf_counter() - start)
        run.verify(delivered=False)
    return rate


def _post_batches(run: Run, entries: int) -> None:
    for first in range(0, entries, POST_MANY):
        run.posted += run.bus.post_many(
            [Ticked(number) for number in range(first, first + POST_MANY)]
        )


def keys(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Post in batches of 100 with idempotency keys: all new, and every other one taken.

    Its floor is the same without keys.
    """
    entries = sizes.entries(10_000, POST_MANY)
    works = {
        FLOOR: lambda: _keyed_rate(target, entries, keyed=False),
        "posts with new keys": lambda: _keyed_rate(target, entries),
        "posts of which half are taken": lambda: _keyed_rate(target, entries, taken=2),
    }
    yield from compared("keys", target, sizes, works, entries=entries, batch=POST_MANY)


def _keyed_rate(target: Target, entries: int, *, keyed: bool = True, taken: int = 0) -> float:
    """Postings a second. One in `taken` has the key of an entry that waits; with 0, none has."""
    with run_on(target) as run:
        run.load(POST_MANY)
        before = range(0, entries, taken) if taken else ()
        run.posted += run.bus.post_many([_keyed(number) for number in before])
        postings = [_keyed(number) if keyed else Ticked(number) for number in range(entries)]
        start = time.perf_counter()
        for first in range(0, entries, POST_MANY):
            run.posted += run.bus.post_many(postings[first : first + POST_MANY])
        rate = entries / (time.perf_counter() - start)
        run.posted = sorted(set(run.posted))
        run.verify(delivered=False)
    return rate


def _keyed(number: int) -> Posting:
    return Posting(event=Ticked(number), key=f"order-{number}")


def drain_rate(
    target: Target,
    entries: int,
    config: BusConfig | None = None,
    *,
    concurrency: int | None = None,
    priorities: Sequence[Priority] = (NORMAL,),
) -> float:
    """Drain a backlog that was posted beforehand, by one node whose handler does nothing.

    From the first handler's start to the last outcome's commit: how long a node takes to start is
    no matter of rate. `concurrency` is the limit of the bus. Entries have `priorities` in turns.
    """
    with run_on(target, config) as run:
        if concurrency is not None:
            run.bus.limit(concurrency=concurrency)
        run.load(entries, priorities)
        run.start()
        run.wait()
        rate = entries / (time.perf_counter() - run.first_at)
        run.verify()
    return rate


def drain(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Handle a backlog that was posted beforehand: one node, a handler that does nothing."""
    entries = sizes.entries(200_000)
    works = {
        FLOOR: lambda: move_rate(target, entries),
        "drain rate": lambda: drain_rate(target, entries),
    }
    yield from compared("drain", target, sizes, works, entries=entries, floor_batch=CLAIM)


def limits(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Handle a backlog under a limit of the whole cluster that never holds it up, and without."""
    entries = sizes.entries(100_000)
    works = {
        FLOOR: lambda: drain_rate(target, entries),
        "drain of a limited queue": lambda: drain_rate(target, entries, concurrency=GENEROUS),
    }
    yield from compared("limits", target, sizes, works, entries=entries, concurrency=GENEROUS)


def priorities(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Handle a backlog whose entries have three priorities in turns, and one without priorities."""
    entries = sizes.entries(100_000)
    works = {
        FLOOR: lambda: drain_rate(target, entries),
        "drain of three priorities": lambda: drain_rate(target, entries, priorities=PRIORITIES),
    }
    yield from compared("priorities", target, sizes, works, entries=entries)


def queues(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Handle a backlog of notifications that stand in 1, 4, 16 or 64 queues of one process.

    The ratios are to one queue.
    """
    entries = sizes.entries(50_000, max(QUEUES))
    works = {
        FLOOR if count == 1 else f"drain of {count} queues": partial(
            _queues_rate, target, entries, count
        )
        for count in QUEUES
    }
    yield from compared("queues", target, sizes, works, entries=entries)


def _queues_rate(target: Target, entries: int, queues: int) -> float:
    with target.fresh() as url:
        delivery = QueueDelivery(url, queues)
        with closing(delivery.face):
            _, seconds = delivery.round(entries)
        table = delivery.face._engine.config.table
        verify_counts(url, table, waiting=0, ended=entries)
    return 1 / seconds


def through(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Post by post_many(100) and handle at once, in one process, beside a drain of as many.

    Its floor is that of a drain.
    """
    entries = sizes.entries(100_000, POST_MANY)
    works = {
        FLOOR: lambda: move_rate(target, entries),
        "posted and handled": lambda: _through(target, entries),
        "drain of as many": lambda: drain_rate(target, entries),
    }
    settings: dict[str, Any] = {"entries": entries, "batch": POST_MANY, "floor_batch": CLAIM}
    rates = dict[str, list[float]]()
    for measurement in compared("through", target, sizes, works, **settings):
        rates[measurement.metric] = measurement.settings["rates"]
        yield measurement
    ratio = median_ratio(rates["posted and handled"], rates["drain of as many"])
    settings["rounds"] = sizes.rounds
    yield Measurement(
        "through", target.name, "posted and handled, to a drain", ratio, "x", settings
    )


def _through(target: Target, entries: int) -> float:
    with run_on(target) as run:
        run.start()
        start = time.perf_counter()
        _post_batches(run, entries)
        run.wait()
        rate = len(run.posted) / (time.perf_counter() - start)
        run.verify()
    return rate


CLAIM_SIZES = (10, 100, 500)


def claim_batch(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Drain with max_entries_claimed 10 (Kill Bill's default), 100 (ours) and 500."""
    entries = sizes.entries(30_000)
    works: dict[str, Callable[[], float]] = {
        str(size): partial(drain_rate, target, entries, BusConfig(max_entries_claimed=size))
        for size in CLAIM_SIZES
    }
    rates = alternating(sizes.rounds, {**works, FLOOR: lambda: move_rate(target, entries)})
    for size in CLAIM_SIZES:
        measured = rates[str(size)]
        settings = {
            "entries": entries,
            "rounds": sizes.rounds,
            "max_entries_claimed": size,
            "rates": measured,
        }
        ratio = median_ratio(measured, rates[FLOOR])
        metric, median = f"drain rate, max_entries_claimed={size}", statistics.median(measured)
        yield Measurement("claim-batch", target.name, metric, median, "entries/s", settings, ratio)

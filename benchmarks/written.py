"""The amount that each step of an entry's life writes, which no other load changes."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from sqlalchemy import URL
from sqlalchemy.event import listen

from benchmarks.databases import Target
from benchmarks.floor import CLAIM, bare, fill
from benchmarks.measurement import Measurement
from benchmarks.meters import UNITS, meter
from benchmarks.peers import OURS, PGQUEUER, PgQueuer
from benchmarks.workload import FLOOR, POST_MANY, Run, Sizes, Ticked, verify_counts
from queue_core.model.config import BusConfig

STATEMENTS = "statements"
POSTS, BULK, DRAIN, THROUGH = "post", "post_many", "drain", "posted and handled"
UNKEPT = "post_many and drain, history of failures"

Step: TypeAlias = tuple[str, int, Counter[str]]
"""A step, the number of its entries, and the counts of its client itself."""
USED = 6_000
"""Entries in history before the first step.

To PostgreSQL's index of their dates only the first megabyte is written row by row.
"""
READY: Step = ("", 0, Counter())
"""The part before the first step, which is not measured."""


def written(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Count the writes for an entry that is posted alone, in a hundred, drained, and both.

    Bulk post and drain are also one step, where history keeps failures only. The floor is that of
    the bare driver. A bus opens, does a step, and is closed.
    """
    entries = sizes.entries(5_000, POST_MANY) // POST_MANY * POST_MANY
    floor = _measured(target, _floor, entries)
    found = {OURS: written_by_us(target, entries)}
    if target.name == "postgresql" and PGQUEUER.installed:
        found[PGQUEUER.package] = _measured(target, _pgqueuer, entries)
    for name, steps in {FLOOR: floor, **found}.items():
        for step, counted in steps.items():
            base = floor.get(step, {})
            for what, value in counted.items():
                ratio = value / base[what] if base.get(what) and name != FLOOR else None
                yield Measurement(
                    "written",
                    target.name,
                    f"{what} of {step}, {name}",
                    value,
                    f"{UNITS.get(what, what)}/entry",
                    {"entries": entries},
                    ratio,
                )


def written_by_us(target: Target, entries: int) -> dict[str, dict[str, float]]:
    """The writes of each step for an entry, by the step's name: `entries` is a multiple of 100."""
    return _measured(target, _ours, entries)


def _measured(
    target: Target, work: Callable[[URL, int], Iterator[Step]], entries: int
) -> dict[str, dict[str, float]]:
    """The writes of the steps of `work`, by step and by entry."""
    found = dict[str, dict[str, float]]()
    with target.fresh() as url:
        run = Run(url)
        run.load(USED)
        run.start()
        run.wait()
        run.bus.close()
        steps = work(url, entries)
        next(steps)
        with meter(target.name, url) as reading:
            before = reading.totals()
            for step, times, counted in steps:
                after = reading.totals()
                wrote = {name: total - before[name] for name, total in after.items()} | counted
                found[step] = {name: value / times for name, value in wrote.items()}
                before = after
    return found


def _ours(url: URL, entries: int) -> Iterator[Step]:
    numbers = [range(first, first + POST_MANY) for first in range(0, entries, POST_MANY)]
    posted = list[int]()

    def alone(run: Run) -> None:
        posted.extend(run.bus.post(Ticked(number)) for number in range(entries))

    def many(run: Run) -> None:
        for batch in numbers:
            posted.extend(run.bus.post_many(map(Ticked, batch)))

    def drained(run: Run) -> None:
        run.posted = posted
        run.start()
        run.wait()

    def through(run: Run) -> None:
        run.start()
        for batch in numbers:
            run.posted += run.bus.post_many(map(Ticked, batch))
        run.wait()

    def both(run: Run) -> None:
        many(run)
        run.posted = posted[-entries:]
        run.start()
        run.wait()

    steps: Mapping[str, tuple[int, Callable[[Run], None]]] = {
        POSTS: (entries, alone),
        BULK: (entries, many),
        DRAIN: (2 * entries, drained),
        THROUGH: (entries, through),
        UNKEPT: (entries, both),
    }
    yield READY
    for step, (times, work) in steps.items():
        config = BusConfig(history="failures" if step == UNKEPT else "all")
        run, sent = Run(url, config), Counter[str]()
        with ExitStack() as running:
            running.callback(run.bus.close)
            for engine in run.bus._engine.database.engines:
                listen(
                    engine, "before_cursor_execute", lambda *_, sent=sent: sent.update([STATEMENTS])
                )
            work(run)
        yield step, times, sent
    verify_counts(url, BusConfig().table, waiting=0, ended=USED + 3 * entries)


def _floor(url: URL, entries: int) -> Iterator[Step]:
    yield READY
    with bare(url) as connection:
        names = list(connection.rows[0])
        values = itertools.cycle(connection.encoded(connection.main, connection.rows))
        for row in itertools.islice(values, entries):
            connection.insert_one(names, row)
    yield POSTS, entries, Counter()
    with bare(url) as connection:
        fill(connection, entries, POST_MANY)
    yield BULK, entries, Counter()
    with bare(url) as connection:
        now = datetime.now(UTC)
        bound, until = connection.date(now), connection.date(now + timedelta(seconds=300))
        while ids := connection.claim(CLAIM, bound, until):
            connection.move(ids, bound)
    yield DRAIN, 2 * entries, Counter()
    verify_counts(url, BusConfig().table, waiting=0, ended=USED + 2 * entries)


def _pgqueuer(url: URL, entries: int) -> Iterator[Step]:
    async def each(work: Callable[[PgQueuer], Awaitable[object]], times: int = 1) -> None:
        async with PgQueuer.on(url) as queuer:
            for _ in range(times):
                await work(queuer)

    asyncio.run(each(PgQueuer.install))
    yield READY
    asyncio.run(each(PgQueuer.post, entries))
    yield POSTS, entries, Counter()
    asyncio.run(each(PgQueuer.post_many, entries // POST_MANY))
    yield BULK, entries, Counter()
    asyncio.run(each(lambda queuer: queuer.drain(2 * entries)))
    yield DRAIN, 2 * entries, Counter()

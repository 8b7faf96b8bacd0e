"""The start of an entry in another process, beside PgQueuer's."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import msgspec

from benchmarks.databases import Target
from benchmarks.floor import BarePostgreSQL
from benchmarks.measurement import Measurement, percentile
from benchmarks.nodes import AskedProcess, bus_process
from benchmarks.peers import OURS, PGQUEUER, PgQueuer
from benchmarks.workload import (
    COMPLETION_SECONDS,
    FLOOR,
    LOOK_SECONDS,
    WARM_UP,
    Sizes,
    Ticked,
    VerificationError,
    alternating,
    median_ratio,
    paced,
    run_on,
)
from queue_core.model.config import BusConfig
from queue_core.model.mode import Mode

RATE = 100
SHARES = (("p50", 0.5), ("p99", 0.99))


def latency_peers(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """From before a post here to its handler in another process, at 100/s.

    The floor is that of the driver: an INSERT that notifies, and a claim. All rounds together post
    for 30 seconds.
    """
    if target.name != "postgresql" or not PGQUEUER.installed:
        return
    entries = sizes.entries(RATE * 30 // sizes.rounds)
    works: dict[str, Callable[[], list[float]]] = {
        FLOOR: partial(_bare, target, entries),
        OURS: partial(_ours, target, entries),
        PGQUEUER.package: partial(_pgqueuer, target, entries),
    }
    found = alternating(sizes.rounds, works)
    settings = {"entries": entries, "rate": RATE, "rounds": sizes.rounds}
    for name, share in SHARES:
        took = {
            who: [percentile(one, share) * 1e3 for one in rounds] for who, rounds in found.items()
        }
        for who, values in took.items():
            metric, value = f"post to start elsewhere, {name}, {who}", statistics.median(values)
            yield Measurement("latency-peers", target.name, metric, value, "ms", settings)
        for who in (OURS, FLOOR):
            metric = f"post to start elsewhere, {name}, {who} to {PGQUEUER.package}"
            ratio = median_ratio(took[who], took[PGQUEUER.package])
            yield Measurement("latency-peers", target.name, metric, ratio, "x", settings)


def _bare(target: Target, entries: int) -> list[float]:
    posted_at = dict[int, float]()
    with (
        target.fresh() as url,
        closing(BarePostgreSQL(url)) as poster,
        closing(AskedProcess("benchmarks.bare_process", url)) as claimer,
    ):
        claimer.ask("listen")
        claimer.tell(f"claim {WARM_UP + entries}")
        names = list(poster.rows[0])
        row = poster.encoded(poster.main, poster.rows[:1])[0]
        for _ in range(WARM_UP):
            poster.insert_and_notify(names, row)
        for _ in paced(entries, RATE):
            at = time.perf_counter()
            posted_at[poster.insert_and_notify(names, row)] = at
        claimed_at = claimer.answer()
    return [claimed_at[str(record_id)] - at for record_id, at in posted_at.items()]


def _ours(target: Target, entries: int) -> list[float]:
    with run_on(target, BusConfig(mode=Mode.POLLING)) as run:
        with bus_process(run.bus._engine.database.url, Mode.POLLING, timed=True) as node:
            node.ask("start")
            run.load(WARM_UP)
            node.wait_until_handled(WARM_UP)
            posted_at = list[float]()
            for number in paced(entries, RATE):
                posted_at.append(time.perf_counter())
                run.posted.append(run.bus.post(Ticked(number)))
            node.wait_until_handled(WARM_UP + entries)
            started_at = node.ask("times")
            node.ask("stop")
        run.verify()
    # Linux's clock for intervals is one for all processes.
    return [started_at[str(number)] - at for number, at in enumerate(posted_at)]


def _pgqueuer(target: Target, entries: int) -> list[float]:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_pgqueuer_starts(target, entries))


async def _pgqueuer_starts(target: Target, entries: int) -> list[float]:
    with target.fresh() as url:
        async with PgQueuer.on(url) as queuer:
            await queuer.install()
            with closing(AskedProcess("benchmarks.pgqueuer_process", url)) as worker:
                for number in range(-WARM_UP, 0):
                    await queuer.post(_payload(number))
                await _called(worker, WARM_UP)
                posted_at, begin = list[float](), time.perf_counter()
                for number in range(entries):
                    if (left := begin + number / RATE - time.perf_counter()) > 0:
                        await asyncio.sleep(left)
                    payload = _payload(number)
                    posted_at.append(time.perf_counter())
                    await queuer.post(payload)
                called_at = await _called(worker, WARM_UP + entries)
    return [called_at[str(number)] - at for number, at in enumerate(posted_at)]


def _payload(number: int) -> bytes:
    return msgspec.json.encode(Ticked(number))


async def _called(worker: AskedProcess, jobs: int) -> dict[str, float]:
    """When each job was called, once all were."""
    deadline = time.monotonic() + COMPLETION_SECONDS
    while True:
        called_at: dict[str, float] = await asyncio.to_thread(worker.ask, "times")
        if len(called_at) >= jobs:
            return called_at
        if time.monotonic() > deadline:
            raise VerificationError(f"pgqueuer: {len(called_at)} of {jobs} jobs were called")
        await asyncio.sleep(LOOK_SECONDS)

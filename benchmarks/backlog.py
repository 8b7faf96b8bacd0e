"""Claims from a backlog of ten million entries, beside those from backlogs of a thousand."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator

from sqlalchemy import URL

from benchmarks.databases import Target
from benchmarks.floor import bare, fill
from benchmarks.measurement import Measurement, percentile
from benchmarks.snapshot import watched_claims
from benchmarks.workload import (
    COMPLETION_SECONDS,
    Run,
    Sizes,
    Ticked,
    VerificationError,
    alternating,
    median_ratio,
    run_on,
    verify_counts,
)
from queue_core.model.config import BusConfig
from queue_core.model.mode import Mode

SMALL = 1_000
CONFIG = BusConfig(mode=Mode.POLLING)
"""Any node may run the entries."""


def backlog(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """The 99th percentile of claims while a long backlog stands there, and with short ones."""
    handled = sizes.entries(50_000, SMALL)
    rows = sizes.standing(10_000_000) + 2 * sizes.rounds * handled
    ended = 0
    with target.fresh() as url:
        with bare(url) as connection:
            fill(connection, rows)

        def of_large() -> float:
            nonlocal ended
            seconds, more = _claims(url, handled)
            ended += more
            return percentile(seconds, 0.99) * 1e3

        works = {"small": lambda: _of_small(target, handled), "large": of_large}
        found = alternating(sizes.rounds, works)
        verify_counts(url, CONFIG.table, waiting=rows - ended, ended=ended)
    settings = {"rows": rows, "entries": handled, "rounds": sizes.rounds}
    for name, count in (("small", SMALL), ("large", rows)):
        metric, value = f"claim p99, backlog of {count:,}", statistics.median(found[name])
        yield Measurement("backlog", target.name, metric, value, "ms", settings)
    ratio = median_ratio(found["large"], found["small"])
    yield Measurement("backlog", target.name, "claim p99, long to short", ratio, "x", settings)


def _of_small(target: Target, handled: int) -> float:
    with run_on(target, CONFIG) as run:
        claims = watched_claims(run)
        run.start()
        for _ in range(0, handled, SMALL):
            run.load(SMALL)
            run.wait()
        run.verify()
    return percentile(claims.seconds, 0.99) * 1e3


def _claims(url: URL, handled: int) -> tuple[list[float], int]:
    """The seconds of claims until `handled` entries were handled, and the number at the end."""
    run, reached, calls = Run(url, CONFIG), threading.Event(), list[None]()
    claims = watched_claims(run)

    def handle(event: Ticked) -> None:
        run.handle(event)
        calls.append(None)
        if len(calls) >= handled:
            reached.set()

    run.start(handle)
    if not reached.wait(COMPLETION_SECONDS):
        raise VerificationError(f"{len(calls)} of {handled} entries handled")
    seconds = claims.seconds.copy()
    run.bus.close()
    return seconds, len(calls)

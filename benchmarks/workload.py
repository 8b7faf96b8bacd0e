"""The work of every scenario.

Post the smallest event, count it, compare in rounds, look at tables.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry
from sqlalchemy import URL, func, select

from benchmarks.databases import Target
from benchmarks.measurement import Measurement
from bus.persistent import PersistentBus
from queue_core.model.config import BusConfig
from queue_core.model.posting import Posting
from queue_core.model.priority import NORMAL, Priority
from sql.database import Database
from sql.tables import entry_tables

T = TypeVar("T")

COMPLETION_SECONDS = 300.0
LOOK_SECONDS = 0.02
LOAD_BATCH = 1_000
POST_MANY = 100
WARM_UP = 10
"""Entries before the clock starts: they open connections, compile statements and wake pollers."""


class VerificationError(Exception):
    """The tables don't hold the entries of the scenario: its figures mean nothing."""


@dataclass(frozen=True)
class Sizes:
    """The size of a scenario: `scale` multiplies its full size, `rounds` repeats comparisons.

    A `trial` only shows that scenarios work: its figures mean nothing.
    """

    scale: float
    rounds: int
    trial: bool = False

    def entries(self, full: int, least: int = 20, *, telling: int = 0) -> int:
        """Entries of a scenario whose full size is `full`.

        It works with `least`, and its figures mean something from `telling` on.
        """
        return max(least, 0 if self.trial else telling, round(full * self.scale))

    def standing(self, full: int, least: int = 20) -> int:
        """Rows that only stand in a table: by the scale's square, because they are millions."""
        return max(least, round(full * self.scale**2))

    def seconds(self, full: float, least: float) -> float:
        """Length of a scenario that watches for a while."""
        return max(least, full * min(1.0, self.scale))

    def processes(self, full: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers of processes to compare, of which a trial takes two."""
        return full[:2] if self.trial else full


@dataclass(frozen=True)
class Ticked:
    """The event that is posted: as small as events get in practice."""

    number: int
    account: str = "5f0c1b6e-4f0a-4a55-9c43-6a3f1f0f4a11"


class Run:
    """One bus on a fresh database, with a handler that does nothing but count."""

    def __init__(self, url: URL, config: BusConfig | None = None) -> None:
        self.bus = PersistentBus(url, config, metrics_registry=CollectorRegistry())
        self.posted: list[int] = []
        self.first_at = 0.0
        """When the first handler started."""
        self._numbers = itertools.count(1)
        self._handled = 0
        self._goal = (sys.maxsize, threading.Event())
        """The entries of the last wait, and the flag that is set when all are handled."""

    def handle(self, _event: Ticked) -> None:
        """The handler."""
        self._handled = number = next(self._numbers)
        if number == 1:
            self.first_at = time.perf_counter()
        target, reached = self._goal
        if number >= target:
            reached.set()

    def start(self, handler: Callable[[Ticked], None] | None = None) -> None:
        """Deliver to `handler`, which calls `handle` (default: that itself)."""
        self.bus.subscribe(Ticked, handler or self.handle, name="benchmark")
        self.bus.start()

    def load(self, entries: int, priorities: Sequence[Priority] = (NORMAL,)) -> None:
        """Post a backlog in batches, with these priorities in turns; its numbers are negative."""
        for start in range(-entries, 0, LOAD_BATCH):
            batch = [
                Posting(event=Ticked(number), priority=priorities[number % len(priorities)])
                for number in range(start, min(start + LOAD_BATCH, 0))
            ]
            self.posted += self.bus.post_many(batch)

    def wait(self) -> None:
        """Return once the outcome of everything posted is committed.

        Raises VerificationError if it takes too long.
        """
        # A new one for each wait: the former one says nothing of this.
        target, reached = self._goal = len(self.posted), threading.Event()
        if self._handled < target and not reached.wait(COMPLETION_SECONDS):
            raise VerificationError(
                f"{self._handled} of {target} entries handled in {COMPLETION_SECONDS} s"
            )
        ledger = self.bus._engine.lifecycle.ledger
        # Often: the time of the last look counts.
        until(lambda: not len(ledger), "all outcomes are written", look_seconds=0.0005)

    def verify(self, *, delivered: bool = True, truncated: int = 0) -> None:
        """Check that all that was posted is once in history as PROCESSED, or in the main table.

        `truncated` rows of history are gone. Raises VerificationError.
        """
        self.bus._engine.lifecycle.stop()
        statements = self.bus._engine.store.statements
        main, past = statements.main, statements.past
        with self.bus._engine.database.read() as connection:
            waiting = list(connection.execute(select(main.c.record_id)).scalars())
            ended = connection.execute(select(past.c.record_id, past.c.processing_state)).all()
        here, elsewhere = (
            ([row.record_id for row in ended], waiting) if delivered else (waiting, ended)
        )
        if (
            elsewhere
            or len(here) + truncated != len(self.posted)
            or len(set(here)) != len(here)
            or not set(here) <= set(self.posted)
            or any(row.processing_state != "PROCESSED" for row in ended)
        ):
            raise VerificationError(
                f"posted {len(self.posted)}, truncated {truncated}; history holds {len(ended)}, "
                f"the main table {len(waiting)}"
            )


def until(
    condition: Callable[[], T],
    what: str,
    seconds: float = COMPLETION_SECONDS,
    *,
    look_seconds: float = LOOK_SECONDS,
) -> T:
    """Call `condition` until it answers with something true, and return that.

    Raises VerificationError if it does not within so many `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise VerificationError(f"not within {seconds:g} s: {what}")
        time.sleep(look_seconds)
    return found


def paced(entries: int, rate: float, *, start: float | None = None) -> Iterator[int]:
    """The numbers of entries, each at its planned time however long the ones before took.

    The first is planned for `start`, as the clock of performance counts, or for now.
    """
    begin = time.perf_counter() if start is None else start
    for number in range(entries):
        if (left := begin + number / rate - time.perf_counter()) > 0:
            time.sleep(left)
        yield number


@contextmanager
def run_on(target: Target, config: BusConfig | None = None) -> Iterator[Run]:
    """A run on a fresh database."""
    with target.fresh() as url:
        run = Run(url, config)
        try:
            yield run
        finally:
            run.bus.close()


def verify_counts(url: URL, table: str, *, waiting: int, ended: int) -> None:
    """Check that `waiting` entries wait, and `ended` others have ended, each once and as PROCESSED.

    For tables that are too large to be read. Raises VerificationError.
    """
    tables = entry_tables(table)
    main, past = tables.main.c, tables.history.c
    processed = select(func.count()).where(past.processing_state == "PROCESSED")
    counts = {
        "waiting": select(func.count()).select_from(tables.main),
        "ended": processed,
        "ended, each once": select(func.count(past.record_id.distinct())),
        "in both tables": select(func.count()).where(main.record_id == past.record_id),
    }
    database = Database(url, statement_timeout_seconds=COMPLETION_SECONDS)
    with database.read() as connection:
        found = {name: connection.execute(count).scalar_one() for name, count in counts.items()}
    database.close()
    if list(found.values()) != [waiting, ended, ended, 0]:
        raise VerificationError(
            f"{table}: {found}; expected are {waiting} waiting and {ended} ended"
        )


def alternating(rounds: int, works: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Return the results of each of `works`, by round.

    Every other round is in reverse order, so that a drift favours nobody.
    """
    found = defaultdict[str, list[T]](list)
    for number in range(rounds):
        for name in list(works)[:: -1 if number % 2 else 1]:
            found[name].append(works[name]())
    return found


FLOOR = "floor"
"""Name of the bare driver's work among those that alternate."""


def compared(
    scenario: str,
    target: Target,
    sizes: Sizes,
    works: Mapping[str, Callable[[], float]],
    **settings: Any,
) -> Iterator[Measurement]:
    """Measure the rates of `works` against `works[FLOOR]` in alternating rounds.

    Returns medians, and medians of the ratios.
    """
    found = alternating(sizes.rounds, works)
    for metric in works:
        if metric == FLOOR and scenario != FLOOR:
            continue
        yield Measurement(
            scenario,
            target.name,
            metric,
            statistics.median(found[metric]),
            "entries/s",
            {
                **settings,
                "rounds": sizes.rounds,
                "rates": found[metric],
                "floor_rates": found[FLOOR],
            },
            median_ratio(found[metric], found[FLOOR]),
        )


def median_ratio(rates: list[float], base: list[float]) -> float:
    """Of the ratios within each round, the median."""
    return statistics.median(rate / of for rate, of in zip(rates, base, strict=True))

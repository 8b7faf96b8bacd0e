"""The cost of an entry while something else has grown large.

Each axis is compared with the same database without it.

Both databases exist side by side and are measured in alternating rounds of the same entries. The
cost of a post is that of post_many of 100; the cost of a delivery is the time between the first
handler's start and the last one's, so that it holds claims, handlers and outcomes, but not the
start of the node.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from sqlalchemy import URL, Table

from benchmarks.databases import Target
from benchmarks.floor import Bare, bare
from benchmarks.measurement import Measurement
from benchmarks.workload import (
    COMPLETION_SECONDS,
    LOAD_BATCH,
    POST_MANY,
    Sizes,
    Ticked,
    VerificationError,
    alternating,
    median_ratio,
    verify_counts,
)
from bus.persistent import PersistentBus
from notifications.service import NotificationService
from queue_core.model.lanes import PARKED
from queue_core.model.posting import Posting

SERVICE = "benchmark"
ROUNDS = 2
"""For each of other scenarios: here they are short, beside their waits."""
_DAY = timedelta(days=1)


class Delivery:
    """Posts and delivers batches of entries in turn, and counts the events of its handlers."""

    face: PersistentBus | NotificationService

    def __init__(self) -> None:
        self.posted = self.handled = 0
        self._times: list[float] = []
        self._goal = 0
        self._reached = threading.Event()

    def handle(self, _event: Ticked) -> None:
        """The handler."""
        self._times.append(time.perf_counter())
        if len(self._times) >= self._goal:
            self._reached.set()

    def _post(self, batch: Sequence[Ticked]) -> None:
        raise NotImplementedError

    def round(self, entries: int) -> tuple[float, float]:
        """Post entries, then deliver as many; return the seconds per post and per delivery."""
        self._times, self._goal = [], entries
        self._reached.clear()
        start = time.perf_counter()
        for first in range(0, entries, POST_MANY):
            self._post([Ticked(number) for number in range(first, min(entries, first + POST_MANY))])
        posting = time.perf_counter() - start
        self.posted += entries
        self.face.start()
        reached = self._reached.wait(COMPLETION_SECONDS)
        self.face.stop()
        self.handled += len(self._times)
        if not reached:
            raise VerificationError(f"{len(self._times)} of {entries} entries delivered")
        times = sorted(self._times)
        return posting / entries, (times[entries - 1] - times[0]) / (entries - 1)


class BusDelivery(Delivery):
    """On a bus."""

    def __init__(self, url: URL) -> None:
        super().__init__()
        self.face = self._bus = PersistentBus(url, metrics_registry=CollectorRegistry())
        self._bus.subscribe(Ticked, self.handle, name="benchmark")

    def _post(self, batch: Sequence[Ticked]) -> None:
        self._bus.post_many(batch)


class QueueDelivery(Delivery):
    """On the queues of a notification service, in turn."""

    def __init__(self, url: URL, queues: int) -> None:
        super().__init__()
        self.face = service = NotificationService(url, metrics_registry=CollectorRegistry())
        self._queues = itertools.cycle(
            service.create_queue(SERVICE, f"queue{number}", self.handle, event_types=[Ticked])
            for number in range(queues)
        )

    def _post(self, batch: Sequence[Ticked]) -> None:
        next(self._queues).schedule_many([Posting(event=event) for event in batch])


@dataclass
class Case:
    """One of the two databases of an axis.

    `standing` and `ended`: rows by hand in the main table and in history.
    """

    url: URL
    delivery: Delivery
    connection: Bare
    standing: int = 0
    ended: int = 0

    @property
    def table(self) -> str:
        """The main table's name."""
        return self.delivery.face._engine.config.table

    def put(
        self,
        rows: int,
        *,
        past: bool = False,
        age: timedelta = _DAY,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """Write entries like those that are posted, but for `values`, dated around now - `age`."""
        store = self.delivery.face._engine.store
        table: Table = store.statements.past if past else store.statements.main
        template = dict(self.connection.rows[0]) | dict(values or {})
        dates = ["created_date", "effective_date"] + (
            ["finished_date", "started_date"] if past else []
        )
        first = datetime.now(UTC) - age
        for start in range(0, rows, LOAD_BATCH):
            date = first + timedelta(milliseconds=start)
            row = template | dict.fromkeys(dates, date)
            count = min(LOAD_BATCH, rows - start)
            if past:
                # Before all ids of the main table, as history's are.
                batch = [row | {"record_id": start + place - rows} for place in range(count)]
                encoded = self.connection.encoded(table, batch)
            else:
                batch, encoded = [row], self.connection.encoded(table, [row]) * count
            self.connection.insert_many(table, list(batch[0]), encoded)
        if past:
            self.ended += rows
        else:
            self.standing += rows

    def pass_through(self, entries: int, batch: int) -> None:
        """Post and deliver entries, unmeasured."""
        for start in range(0, entries, batch):
            self.delivery.round(min(batch, entries - start))

    def verify(self) -> None:
        """Every entry that was delivered has ended once, all others wait.

        Raises VerificationError.
        """
        delivery = self.delivery
        waiting = self.standing + delivery.posted - delivery.handled
        verify_counts(self.url, self.table, waiting=waiting, ended=self.ended + delivery.handled)


@dataclass(frozen=True)
class Axis:
    """Something that grows.

    `grow` makes the large case of the small one; `before` is done to both.
    """

    name: str
    size: int
    grow: Callable[[Case], None] | None
    deliver: Callable[[URL], Delivery] = BusDelivery
    deliver_large: Callable[[URL], Delivery] | None = None
    before: Callable[[Case], None] | None = None


def _axes(sizes: Sizes, entries: int) -> Iterator[Axis]:
    for backlog in dict.fromkeys(sizes.standing(full, 2_000) for full in (100_000, 1_000_000)):
        yield Axis(
            f"backlog of {backlog // 1000}k",
            backlog,
            partial(Case.put, rows=backlog),
            before=lambda case: case.put(1_000),
        )
    million, ten_millions = sizes.standing(1_000_000), sizes.standing(10_000_000)
    yield Axis(
        "future notifications",
        million,
        lambda case: case.put(million, age=-_DAY, values={"queue_name": f"{SERVICE}:queue0"}),
        deliver=lambda url: QueueDelivery(url, 1),
    )
    yield Axis(
        "history rows",
        ten_millions,
        lambda case: case.put(ten_millions, past=True, values=_PROCESSED),
    )
    yield Axis(
        "64 queues",
        64,
        None,
        deliver=lambda url: QueueDelivery(url, 1),
        deliver_large=lambda url: QueueDelivery(url, 64),
    )
    yield Axis(
        "older parked entries",
        million,
        lambda case: case.put(million, values={"lane": PARKED, "class_name": "unknown.Event"}),
    )
    yield Axis("entries passed", million, lambda case: case.pass_through(million, 10 * entries))
    churn = million // 10

    def hold(case: Case) -> None:
        case.connection.hold_snapshot()
        case.pass_through(churn, 10 * entries)

    def churned(case: Case) -> None:
        case.pass_through(churn, 10 * entries)

    # Both have had the same traffic; only one of them under the snapshot.
    yield Axis("held snapshot, entries since", 2 * churn, hold, before=churned)


_PROCESSED = {
    "processing_state": "PROCESSED",
    "processing_owner": "bench",
    "lane": "bench",
    "claim_count": 1,
}


def growth(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Cost per entry on each axis, and its ratio to that of the small case."""
    entries = sizes.entries(5_000, telling=500)
    for axis in _axes(sizes, entries):
        with ExitStack() as stack:
            small = _case(stack, target, axis.deliver)
            large = _case(stack, target, axis.deliver_large or axis.deliver)
            for case in (small, large):
                if axis.before is not None:
                    axis.before(case)
                case.delivery.round(entries)  # warm
            if axis.grow is not None:
                axis.grow(large)
            works = {
                name: partial(case.delivery.round, entries)
                for name, case in (("small", small), ("large", large))
            }
            costs = alternating(ROUNDS * sizes.rounds, works)
            for case in (small, large):
                case.verify()
        yield from _reported(target, axis, entries, costs)


def _case(stack: ExitStack, target: Target, deliver: Callable[[URL], Delivery]) -> Case:
    url = stack.enter_context(target.fresh())
    delivery = deliver(url)
    stack.enter_context(closing(delivery.face))
    return Case(url, delivery, stack.enter_context(bare(url)))


def _reported(
    target: Target, axis: Axis, entries: int, costs: Mapping[str, list[tuple[float, float]]]
) -> Iterator[Measurement]:
    for place, what in enumerate(("post", "delivery")):
        small, large = ([cost[place] * 1e6 for cost in costs[name]] for name in ("small", "large"))
        settings = {
            "entries": entries,
            "rounds": len(small),
            "rows": axis.size,
            "small_us": small,
            "large_us": large,
        }
        for metric, value, unit in (
            (f"{axis.name}: {what}", statistics.median(large), "us"),
            (f"{axis.name}: {what}, of the small case", median_ratio(large, small), "x"),
        ):
            yield Measurement("growth", target.name, metric, value, unit, settings)

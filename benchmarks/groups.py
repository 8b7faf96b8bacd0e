"""A backlog whose entries are all members of one group, drained by two processes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from benchmarks.databases import Target
from benchmarks.measurement import Measurement
from benchmarks.nodes import BusProcess, bus_process, shared_rate
from benchmarks.workload import (
    LOAD_BATCH,
    Sizes,
    Ticked,
    VerificationError,
    alternating,
    median_ratio,
    verify_counts,
)
from bus.persistent import PersistentBus
from queue_core.model.config import BusConfig, Mode
from queue_core.model.entry import Posting

PROCESSES = 2
PLAIN, GROUPED = "drain rate, no group", "drain rate, one group"


def groups(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """One backlog that any node may run, handled by two processes: as one group, and without."""
    entries = sizes.entries(100_000)
    with target.fresh() as url, ExitStack() as running:
        bus = PersistentBus(url, BusConfig(), metrics_registry=CollectorRegistry())
        running.callback(bus.close)
        members = [running.enter_context(bus_process(url, Mode.POLLING)) for _ in range(PROCESSES)]
        works = {
            PLAIN: partial(_rate, bus, members, entries, grouped=False),
            GROUPED: partial(_rate, bus, members, entries, grouped=True),
        }
        rates = alternating(sizes.rounds, works)
        verify_counts(url, bus.config.table, waiting=0, ended=2 * sizes.rounds * entries)
    settings: dict[str, Any] = {
        "entries": entries,
        "rounds": sizes.rounds,
        "processes": PROCESSES,
        "mode": Mode.POLLING.value,
    }
    for metric, measured in rates.items():
        value = statistics.median(measured)
        yield Measurement(
            "groups", target.name, metric, value, "entries/s", {**settings, "rates": measured}
        )
    ratio = median_ratio(rates[GROUPED], rates[PLAIN])
    yield Measurement("groups", target.name, "one group to none", ratio, "x", settings)


def _rate(
    bus: PersistentBus, members: Sequence[BusProcess], entries: int, *, grouped: bool
) -> float:
    group = bus.open_group() if grouped else None
    for start in range(0, entries, LOAD_BATCH):
        numbers = range(start, min(start + LOAD_BATCH, entries))
        bus.post_many([Posting(event=Ticked(number), group=group) for number in numbers])
    if group is not None:
        bus.seal(group)
    rate = shared_rate(members, entries)
    if group is not None:
        status = bus.group_status(group)
        if status.succeeded != entries or status.completed_date is None:
            raise VerificationError(f"the group of {entries} entries ended as {status}")
    return rate

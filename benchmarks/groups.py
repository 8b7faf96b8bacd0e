"""A backlog whose entries are all members of one group, drained by two processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from prometheus_client import CollectorRegistry

from benchmarks.databases import Target
from benchmarks.measurement import Measurement
from benchmarks.nodes import BusProcess, bus_process, shared_rate
from benchmarks.workload import (
    FLOOR,
    LOAD_BATCH,
    Sizes,
    Ticked,
    VerificationError,
    compared,
    verify_counts,
)
from bus.persistent import PersistentBus
from queue_core.model.config import BusConfig
from queue_core.model.mode import Mode
from queue_core.model.posting import Posting

PROCESSES = 2


def groups(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """One backlog that any node may run, handled by two processes: as one group, and without.

    Its floor is the backlog without a group.
    """
    entries = sizes.entries(100_000)
    with target.fresh() as url, ExitStack() as running:
        bus = PersistentBus(url, BusConfig(), metrics_registry=CollectorRegistry())
        running.callback(bus.close)
        members = [running.enter_context(bus_process(url, Mode.POLLING)) for _ in range(PROCESSES)]
        works = {
            FLOOR: partial(_rate, bus, members, entries, grouped=False),
            "drain of one group": partial(_rate, bus, members, entries, grouped=True),
        }
        settings = {"entries": entries, "processes": PROCESSES, "mode": Mode.POLLING.value}
        measured = list(compared("groups", target, sizes, works, **settings))
        verify_counts(url, bus.config.table, waiting=0, ended=2 * sizes.rounds * entries)
    yield from measured


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

"""Whatever a call about entries is given, it works or raises a StickybusError.

In the latter case nothing was written.

These tests try the calls named in `CALLS`, and all reads of `Reads`. `test_public_names.py` tries
everything else that is public, and fails for a call that neither of the two knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from queue_core.queue_reads import Reads
from stickybus import (
    BusConfig,
    InMemoryBus,
    MissedPolicy,
    NotificationConfig,
    NotificationQueue,
    NotificationService,
    PersistentBus,
    Posting,
    State,
    StickybusError,
)
from stickybus.testing import drain


@dataclass
class Order:
    number: int


class Rude:
    """No message can show it."""

    def __repr__(self) -> str:
        raise RuntimeError("rude")


EAST, WEST = timezone(timedelta(hours=12)), timezone(timedelta(hours=-12))
HOSTILE: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63) - 1, 2**70, 10**5000),
    *(
        float("nan"),
        float("inf"),
        float("-inf"),
        1e308,
        -0.5,
        0.5,
        Decimal("NaN"),
        Decimal("1e999"),
    ),
    *("", "x", "5", "\0", "a\0b", "\ud800", "ß" * 100_000, "SKIP", "UTC", "/", "a:b", "!parked"),
    *(
        b"",
        b"\xff",
        bytearray(b"x"),
        [],
        [None],
        ["x"],
        [2**70],
        ["\ud800"],
        (),
        {},
        {1: 2},
        {"a": object()},
    ),
    *(
        {"a": "\ud800"},
        set(),
        frozenset({1}),
        range(3),
        object(),
        object,
        int,
        Order,
        Order(1),
        Rude(),
        len,
        ...,
    ),
    # Naive on purpose.
    *(date(2026, 1, 1), datetime(2026, 1, 1), datetime.min, datetime.max),  # noqa: DTZ001, DTZ901
    *(datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
    *(datetime.max.replace(tzinfo=WEST), datetime.min.replace(tzinfo=EAST)),
    *(
        timedelta.max,
        timedelta.min,
        timedelta(0),
        timedelta(microseconds=1),
        UUID(int=1),
        State.FAILED,
    ),
    *(MissedPolicy.SKIP, Posting(event=None), Posting(event=Order(1), at="soon")),  # type: ignore[arg-type]
]
FITTING: dict[str, Callable[[], Any]] = {
    "event": lambda: Order(1),
    "events": lambda: [Order(1)],
    "postings": lambda: [Posting(event=Order(1))],
    "name": lambda: "some",
    "record_id": lambda: 1,
}
"""Of each parameter without a default."""
CALLS = {
    PersistentBus: ["post", "post_many", "retry", "discard"],
    NotificationQueue: [
        "schedule",
        "schedule_many",
        "update",
        "remove",
        "recur",
        "stop_recurring",
        "recurring",
    ],
    InMemoryBus: ["post", "post_many", "find", "history"],
}
READS = [name for name in vars(Reads) if not name.startswith("_") and not name.endswith("_async")]
TABLES = (
    "bus_events",
    "bus_events_history",
    "notifications",
    "notifications_history",
    "queue_schedules",
)


@pytest.mark.parametrize(
    ("kind", "method"),
    [(kind, method) for kind, names in CALLS.items() for method in names]
    + [(kind, method) for kind in (PersistentBus, NotificationQueue) for method in READS],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_call_raises_documented_errors_only_and_writes_nothing_then(
    tmp_path: Path, kind: type, method: str
) -> None:
    url = f"sqlite:///{tmp_path / 'public.db'}"
    bus = PersistentBus(url, BusConfig(handler_threads=1))
    service = NotificationService(url, NotificationConfig(handler_threads=1))
    queue = service.create_queue("shop", "reminders", lambda _event: None)
    objects: dict[type, Any] = {
        PersistentBus: bus,
        NotificationQueue: queue,
        InMemoryBus: InMemoryBus(),
    }
    call = getattr(objects[kind], method)
    parameters = inspect.signature(call).parameters.values()
    needed = {one.name for one in parameters if one.default is one.empty}

    def rows() -> list[int]:
        counts = ", ".join(f"(SELECT count(*) FROM {table})" for table in TABLES)
        with bus._engine.database.read() as connection:
            return list(connection.execute(text(f"SELECT {counts}")).one())

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(
        given_values=st.dictionaries(
            st.sampled_from([one.name for one in parameters]),
            st.sampled_from(range(len(HOSTILE))),
            min_size=1,
            max_size=2,
        )
    )
    def attempt(given_values: dict[str, int]) -> None:
        arguments = {name: FITTING[name]() for name in needed}
        arguments |= {name: HOSTILE[place] for name, place in given_values.items()}
        before = rows()
        try:
            call(**arguments)
        except StickybusError:
            assert rows() == before

    attempt()
    seen = list[Any]()
    bus.subscribe(Order, seen.append)
    bus.post(Order(7))
    drain(bus)
    assert Order(7) in seen
    service.close()
    bus.close()

"""Whatever a call about entries is given, it works or raises a StickybusError.

In the latter case nothing was written. What an iterable of the caller's raises passes as it is.

These tests try the calls named in `CALLS`, and all reads of `Reads`. `test_public_names.py` tries
everything else that is public, and fails for a call that neither of the two knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from stickybus import (
    BusConfig,
    InMemoryBus,
    NotificationConfig,
    NotificationQueue,
    NotificationService,
    PersistentBus,
    Posting,
    StickybusError,
)
from stickybus.testing import drain
from tests.properties.hostile import BROKEN, CALLS, DECEIVING, HOSTILE, READS, CallersError, Order

NEEDED: dict[str, dict[str, Any]] = {
    **{option: {"key": "some"} for option in ("keep", "on_conflict", "key_wait")},
    "order_failure": {"order_key": "some"},
    "on_failed": {"after": [1]},
    "timezone": {"every": 60},
}
"""What an option is looked at with alone."""
FITTING: dict[str, Callable[[], Any]] = {
    "event": lambda: Order(1),
    "events": lambda: [Order(1)],
    "postings": lambda: [Posting(event=Order(1))],
    "name": lambda: "some",
    "record_id": lambda: 1,
}
"""Of each parameter without a default."""
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

    def attempt(**given_values: Any) -> None:
        arguments = {name: FITTING[name]() for name in needed} | given_values
        before = rows()
        try:
            call(**arguments)
        except (StickybusError, CallersError):
            assert rows() == before

    for parameter in parameters:
        for value in (*DECEIVING, *BROKEN):
            attempt(**NEEDED.get(parameter.name, {}), **{parameter.name: value})

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(
        given_values=st.dictionaries(
            st.sampled_from([one.name for one in parameters]),
            st.sampled_from(range(len(HOSTILE))),
            min_size=1,
            max_size=2,
        )
    )
    def several(given_values: dict[str, int]) -> None:
        attempt(**{name: HOSTILE[place] for name, place in given_values.items()})

    several()
    seen = list[Any]()
    bus.subscribe(Order, seen.append)
    bus.post(Order(7))
    drain(bus)
    assert Order(7) in seen
    service.close()
    bus.close()

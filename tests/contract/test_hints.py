"""What a process tells others of: by NOTIFY on PostgreSQL."""

from __future__ import annotations

import pytest

from queue_core.clock import ManualClock
from queue_core.wakeup import BUSY_NOTIFY_WINDOW_SECONDS, NOTIFY_WINDOW_SECONDS
from stickybus import PersistentBus
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, eventually, on_postgresql, statements_of

IDLE_SECONDS = 60.0


def order_of(texts: list[str]) -> list[str]:
    """The posts and hints among statements, in order."""
    return [
        "hint" if "pg_notify" in text else "post"
        for text in texts
        if "pg_notify" in text or text.startswith("INSERT")
    ]


@on_postgresql
def test_a_hint_follows_the_last_of_many_posts(make_bus: MakeBus) -> None:
    bus = make_bus()
    with statements_of(bus.engine.database) as statements:
        for number in range(200):
            bus.post(Order(number))
        eventually(lambda: order_of(statements.texts)[-1] == "hint", "the last hint")

    sent = order_of(statements.texts)
    assert sent.count("post") == 200
    assert sent.count("hint") <= 200


@on_postgresql
@pytest.mark.parametrize(
    ("entries", "seconds", "window"),
    [
        pytest.param(1, 1.0, NOTIFY_WINDOW_SECONDS, id="one"),
        pytest.param(3, 0.001, NOTIFY_WINDOW_SECONDS, id="some at once"),
        pytest.param(90, 0.1, NOTIFY_WINDOW_SECONDS, id="900 a second"),
        pytest.param(110, 0.1, BUSY_NOTIFY_WINDOW_SECONDS, id="1100 a second"),
    ],
)
def test_the_next_hint_comes_the_later_the_more_is_posted(
    make_bus: MakeBus, entries: int, seconds: float, window: float
) -> None:
    clock = ManualClock()
    wakeup = make_bus(clock=clock).engine.lifecycle.wakeup
    wakeup._notifying = True  # its thread is this one
    wakeup.tell()
    assert wakeup._notify_turn() == NOTIFY_WINDOW_SECONDS
    assert wakeup._notify_turn() == IDLE_SECONDS

    clock.advance(seconds=seconds)
    wakeup.tell(entries)

    assert wakeup._notify_turn() == window


@on_postgresql
def test_a_bus_that_stops_gives_the_hint_that_is_outstanding(make_bus: MakeBus) -> None:
    bus: PersistentBus = make_bus(clock=ManualClock())
    wakeup = bus.engine.lifecycle.wakeup
    wakeup._notifying = True
    wakeup.tell()

    with statements_of(bus.engine.database) as statements:
        wakeup.stop()

    assert order_of(statements.texts) == ["hint"]

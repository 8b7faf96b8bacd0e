"""Posts that a model may make: their events, with options that can be combined."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from queue_core.model.keyed import Keep, OnConflict
from queue_core.model.posting import OnFailed, OrderFailure
from queue_core.model.priority import Priority
from stickybus import Circuit, ExponentialRetries, ImmediateRetries, RetryPolicy, ScheduledRetries
from tests.contract.harness import Order

A_WHILE = timedelta(seconds=40)


@dataclass(frozen=True)
class Timed:
    """An event whose handler is run again at fixed times."""

    number: int


@dataclass(frozen=True)
class Probed:
    """An event whose handler has a circuit."""

    number: int


@dataclass(frozen=True)
class Shared:
    """An event of two handlers."""

    number: int


@dataclass(frozen=True)
class Booked:
    """An event of two handlers, the effect of one of which is there exactly once."""

    number: int


HANDLERS: dict[str, tuple[type[Any], RetryPolicy]] = {
    "timed": (Timed, ScheduledRetries((5,))),
    "probed": (Probed, Circuit(initial_seconds=2, maximum_seconds=8, max_retries=3, jitter=0)),
    "first": (Shared, ImmediateRetries(1)),
    "second": (Shared, ExponentialRetries(initial_seconds=3, max_retries=2, jitter=0)),
    "sends": (Booked, ImmediateRetries(1)),
    "books": (Booked, ScheduledRetries((3,))),
}
"""Beside that of `Order`, which runs again at once."""
EXACTLY_ONCE = "books"
"""The handler that writes its effect in the transaction of the outcome."""
HANDLERS_OF: dict[type[Any], set[str]] = {
    Order: {"orders"},
    **{
        kind: {name for name, one in HANDLERS.items() if one[0] is kind}
        for kind, _ in HANDLERS.values()
    },
}
"""Who has to succeed, by the type of the event."""


@dataclass(frozen=True)
class Wish:
    """A post, as far as its options can be combined and what they name is there."""

    kind: type[Any]
    key: str | None
    keep: Keep
    on_conflict: OnConflict
    order_key: str | None
    order_failure: OrderFailure
    after: list[int | str]
    on_failed: OnFailed
    group: int | None
    priority: Priority
    delay: int
    limit_key: str | None = None

    def options(self, after: list[Any], group: int | None) -> dict[str, Any]:
        """The arguments of the post, which waits for `after`, if for anything."""
        options: dict[str, Any] = {
            "group": group,
            "delay": self.delay,
            "limit_key": self.limit_key,
        }
        if self.key is not None:
            allowed = ["return", "raise", "replace", "requeue", "debounce"]
            if group is not None or after:
                allowed = ["return", "raise"]
            elif self.order_key is not None:
                allowed = ["return", "raise", "replace"]
            on_conflict = self.on_conflict if self.on_conflict in allowed else allowed[-1]
            options |= {"key": self.key, "keep": self.keep, "on_conflict": on_conflict}
        if self.order_key is not None:
            options |= {"order_key": self.order_key, "order_failure": self.order_failure}
        if after:
            options |= {"after": after, "on_failed": self.on_failed}
        if not (after or self.delay):
            options["priority"] = self.priority
        return options


WISHES = st.builds(
    Wish,
    kind=st.sampled_from([Order, Order, Timed, Probed, Shared, Booked]),
    key=st.sampled_from([None, "x", "y"]),
    keep=st.sampled_from(["waiting", "living", A_WHILE, "forever"]),
    on_conflict=st.sampled_from(["return", "raise", "replace", "requeue", "debounce"]),
    order_key=st.sampled_from([None, "k", "l"]),
    order_failure=st.sampled_from(["hold", "skip"]),
    after=st.lists(st.sampled_from([0, 1, 2, 3, "x"]), max_size=2),
    on_failed=st.sampled_from(["cancel", "run", "hold"]),
    group=st.sampled_from([None, 0, 1]),
    priority=st.sampled_from(["normal", "normal", "high", "urgent"]),
    delay=st.sampled_from([0, 0, 0, 5]),
    limit_key=st.sampled_from([None, "m", "n"]),
)

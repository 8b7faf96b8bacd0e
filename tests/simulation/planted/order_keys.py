"""Bugs of order keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from queue_core.claiming.ordered_keys import OrderedKeys
from queue_core.links.ordering import Ordering
from queue_core.model.lanes import WAITING_LANE, Lane
from queue_core.model.states import State
from queue_core.posting.ordered_posts import OrderedPosts
from queue_core.storage.return_to_lane import ReturnToLane
from queue_core.storage.store import Store
from sql.statements.ordered import Ordered, OrderKey
from tests.simulation.planted.bugs import Planting, bug, nothing


@bug
def order_lost_at_the_reaping() -> list[Planting]:
    """The copy of a reaped entry is not the head of its order key."""
    return [(Ordering, "renewed", nothing)]


@bug
def order_key_started_by_each_post() -> list[Planting]:
    """An entry with an order key does not wait for those before it."""
    before: Any = OrderedPosts.before

    def started(self: OrderedPosts) -> None:
        before(self)
        for (draft, _), lane in zip(self._ordered, self._lanes, strict=True):
            draft.row |= {"lane": lane, "processing_state": State.AVAILABLE.value}

    return [(OrderedPosts, "before", started)]


@bug
def order_keys_of_callers_forgotten() -> list[Planting]:
    """Nobody starts the order keys of callers' transactions."""
    return [(OrderedKeys, "look", lambda _self: 0)]


@bug
def order_key_goes_on_at_a_failure() -> list[Planting]:
    """The next of an order key starts when its head has failed, and is to run again."""
    begin: Any = ReturnToLane.__init__
    apply: Any = ReturnToLane.apply

    def begun(self: Any, store: Store, *arguments: Any) -> None:
        begin(self, store, *arguments)
        self._ordering = store.ordering

    def applied(self: Any, connection: Connection) -> Any:
        held = apply(self, connection)
        entry, ordering = self._outcome.entry, self._ordering
        if '"!order"' in (entry.headers or ""):
            key = ordering.key_of(entry.queue_name, entry.headers)
            ordering.statements.remove(connection, key.table_name, entry.record_id)
            ordering._go_on(connection, key, entry.record_id)
        return held

    return [(ReturnToLane, "__init__", begun), (ReturnToLane, "apply", applied)]


@bug
def order_key_starts_what_waits() -> list[Planting]:
    """An entry that waits for others, besides, starts when its order key has no other before it."""
    enter: Any = Ordering.enter

    def entered(
        self: Ordering, connection: Connection, entries: Sequence[Any], **options: Any
    ) -> None:
        enter(self, connection, [(key, one, Lane("")) for key, one, _ in entries], **options)

    return [(Ordering, "enter", entered)]


@bug
def order_key_passes_over_what_waits() -> list[Planting]:
    """An entry loses its place in its order key while it waits for others."""

    def first(self: Ordered, connection: Connection, key: OrderKey) -> Any:
        entries = self.entries
        mine = [entries.c[name] == value for name, value in key._asdict().items()]
        started = select(entries.c.record_id, entries.c.lane).where(
            *mine, entries.c.lane != WAITING_LANE
        )
        return connection.execute(started.order_by(entries.c.place).limit(1)).one_or_none()

    return [(Ordered, "first", first)]


@bug
def order_key_forgets_what_is_released() -> list[Planting]:
    """An entry that waits for others no longer has no turn in its order key."""
    return [(Ordering, "release", nothing)]

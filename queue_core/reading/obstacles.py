"""The obstacles that hold entries of a table, counted as far as a scrape of metrics may cost."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from sqlalchemy import Connection

from queue_core.model.pause import is_in_force
from queue_core.reading.depths import COUNT_LIMIT
from queue_core.storage.pauses import StoredPauses
from queue_core.storage.store import Store


class Obstacles(msgspec.Struct, kw_only=True):
    """The obstacles that hold entries of one queue.

    Attributes:
        queue_name: The bus, or `service:queue`.
        held_keys: Order keys that a failed entry holds, among the table's first 10,000 keys by
            queue and name. No index knows which are held.
        open_circuits: Handlers whose failed entries wait for a probe.
        pauses: Pauses that have not ended: of the queue, its handlers and its order keys.
    """

    queue_name: str
    held_keys: int = 0
    open_circuits: int = 0
    pauses: int = 0


def obstacles(store: Store, queue_names: Iterable[str] = ()) -> list[Obstacles]:
    """The obstacles of a table's queues, by name; of `queue_names` also if there are none."""
    now, names = store.clock.now(), list(queue_names)

    def work(connection: Connection) -> dict[str, Obstacles]:
        found = {name: Obstacles(queue_name=name) for name in names}

        def of(queue_name: str) -> Obstacles:
            return found.setdefault(queue_name, Obstacles(queue_name=queue_name))

        held = store.ordering.statements.held_counts(
            connection, store.config.table, limit=COUNT_LIMIT
        )
        for queue_name, keys in held:
            of(queue_name).held_keys = keys
        for circuit in store.circuits.all(connection):
            of(circuit.queue_name).open_circuits += 1
        for pause in StoredPauses(store).all(connection):
            of(pause.queue_name).pauses += is_in_force(pause, now)
        return found

    found = store.database.fetch(work)
    return [found[name] for name in sorted(found)]

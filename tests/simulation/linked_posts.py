"""Posts with keys, order keys, dependencies and groups: what they are, and what they promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from queue_core.running.subscriber import EntryContext
from stickybus import Posting
from tests.checker import Invariant, Violation
from tests.simulation.database import TABLES
from tests.simulation.settings import Order
from tests.simulation.steps import Behaviour, Link, Post

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.simulation import Simulation

CALLBACK = 1_000
"""The key of a group's callback is that of its first member and this."""
_ORDERED = {Link.ORDER, Link.ORDER_AFTER}
_WAITING = {Link.AFTER, Link.ORDER_AFTER}


class LinkedPosts:
    """All of one simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._used = set[Link]()
        self._last = dict[str, tuple[int, int]]()
        """By face, the key and the id of the last entry that is known to be there."""
        self._awaited = dict[int, int]()
        self._members = dict[int, Sequence[int]]()
        """By the key of a group's callback."""

    def options(
        self, process: Process, face: Any, step: Post, keys: Sequence[int], connection: Any
    ) -> dict[str, Any]:
        """The options of a post's entries."""
        self._used.add(step.link)
        if step.link is Link.KEY:
            return {"key": "k"}
        if step.link is Link.GROUP and keys:
            callback = CALLBACK + keys[0]
            self._simulation.behaviours[callback] = Behaviour()
            self._simulation.record.posting(process, [callback], sticky=False, known=False)
            self._members[callback] = keys
            group = face.open_group(
                on_finished=Posting(event=Order(callback), search_key1=callback),
                connection=connection,
            )
            return {"group": group}
        options = dict[str, Any]()
        if step.link in _ORDERED:
            options |= {"order_key": "o", "order_failure": "skip"}
        if step.link in _WAITING and step.face in self._last:
            key, record_id = self._last[step.face]
            self._awaited |= dict.fromkeys(keys, key)
            options |= {"after": [record_id], "on_failed": "run"}
        return options

    def settle(self, step: Post, keys: Sequence[int], ids: Sequence[Any], committed: bool) -> None:  # noqa: FBT001 -- for partial
        """Note what has become of a post that was answered."""
        for key, record_id in zip(keys, ids, strict=True):
            if step.link is Link.KEY:
                if not record_id.created:
                    self._simulation.record.not_added(key)
                    continue
                self._simulation.record.settle(key, committed=committed)
            if committed:
                self._last[step.face] = key, int(record_id)
        if step.link is Link.GROUP and keys:
            self._simulation.record.settle(CALLBACK + keys[0], committed=committed)

    # -- what is promised -------------------------------------------------------------------------

    def committed(self) -> None:
        """Look at what a transaction has left."""
        for table in TABLES:
            if Link.KEY in self._used:
                self._alone(table, '%"!key"%', "", "live with one idempotency key")
            if self._used & _ORDERED:
                started = "AND processing_state <> 'WAITING'"
                self._alone(table, '%"!order"%', started, "may run with one order key")

    def _alone(self, table: str, mark: str, more: str, what: str) -> None:
        rows = self._rows(f"SELECT record_id FROM {table} WHERE headers LIKE '{mark}' {more}")
        if len(rows) > 1:
            self._violated(Invariant.ONE_A_KEY, rows, f"{len(rows)} entries {what}")

    def began(self, key: int, context: EntryContext) -> None:
        """Look whether it is the turn of an entry whose handler begins."""
        table = "bus_events" if context.queue_name == "bus" else "notifications"
        if key in self._awaited and not self._simulation.record.has_ended(
            table, self._awaited[key]
        ):
            self._violated(
                Invariant.IN_TURN, [], f"{key} runs before {self._awaited[key]}, which it awaits"
            )
        live = "SELECT record_id FROM {} WHERE replay_of IS NULL AND {}"
        if key in self._members:
            members = ", ".join(map(str, self._members[key]))
            rows = self._rows(live.format(table, f"search_key1 IN ({members})"))
            if rows:
                self._violated(
                    Invariant.IN_TURN, rows, f"the callback {key} comes before its members"
                )
        if self._used & _ORDERED and self._simulation.databases.one_writer:
            chain = "COALESCE(origin_id, record_id)"
            mine = f"SELECT {chain} FROM {table} WHERE headers LIKE '%\"!order\"%' AND record_id = "
            earlier = f"headers LIKE '%\"!order\"%' AND {chain} < ({mine}{context.record_id})"
            rows = self._rows(live.format(table, earlier))
            if rows:
                self._violated(
                    Invariant.IN_TURN, rows, f"{key} runs before others of its order key"
                )

    def _rows(self, statement: str) -> list[Any]:
        return self._simulation.databases.rows(statement)

    def _violated(self, invariant: Invariant, rows: Sequence[Any], explanation: str) -> None:
        ids = tuple(row["record_id"] for row in rows)
        self._simulation.record.found(
            Violation(invariant=invariant, record_ids=ids, explanation=explanation)
        )

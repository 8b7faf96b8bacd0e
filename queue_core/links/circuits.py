"""Circuits: the failed entries of a handler wait while one of them, the probe, tries.

A circuit is open as long as it has a row. The entries that wait stand in a lane of its own, from
which nobody claims; its probe stands among all others, at its date, and is marked. The probe's end
decides, in the transaction in which it is written. If it succeeds, the row goes, and nodes bring
back the entries of the lane. If it fails, another one is chosen. If it ends in another way, nodes
choose one, which look once a second whether the probe still is one. If none waits, they close it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Any

from sqlalchemy import Connection, Row

from queue_core.links.link import Ending, RetryByHand
from queue_core.links.links import carries
from queue_core.model.entry import Entry, SubscriberProgress
from queue_core.model.lanes import RETURNING, Lane, circuit_lane
from queue_core.model.outcome import Break
from queue_core.model.retry_policies import delay_after
from queue_core.model.states import State
from queue_core.runtime.clock import Clock
from sql.search_keys import RESERVED, texts, with_marks
from sql.statements import circuits as statements
from sql.statements.base import LARGEST_COUNT
from sql.statements.entries import Statements

_NAME = "probe"
PROBE_MARK = RESERVED + _NAME
"""The mark of an entry that has been a probe. Its text is empty, unless it was replaced since."""
REPLACED = "replaced"
"""The text of that mark if another posting has replaced the probe's: it is a probe no more."""
CHOICE = 1_000
"""A probe is chosen at random among this many, the first in claim order.

One that has failed goes behind the others.
"""


class Circuits:
    """The open circuits of one main table."""

    mark = PROBE_MARK

    def __init__(self, circuits: statements.Circuits, entries: Statements, clock: Clock) -> None:
        self._circuits = circuits
        self._entries = entries
        self._table = entries.main.name
        self._clock = clock
        self._random = Random()  # noqa: S311 -- no secret

    # -- failures ---------------------------------------------------------------------------------

    def failed(self, connection: Connection, entry: Entry, opens: Break) -> None:
        """An entry has failed, and stands in the circuit's lane already.

        It becomes the probe if the circuit was closed. If it was the probe, another one is chosen.
        """
        now, record_id = self._clock.now(), entry.record_id
        lane = circuit_lane(entry.queue_name, opens.handler)
        # If it is closed meanwhile, the entry is brought back as those that were there before.
        circuit = self._circuits.find(connection, self._table, lane)
        if circuit is not None:
            if circuit.probe_id == record_id:
                failures = min(circuit.failures + 1, LARGEST_COUNT)
                date = now + delay_after(opens.policy, failures)
                self._choose(connection, circuit, date, failures)
        elif self._circuits.open(
            connection,
            self._table,
            lane,
            queue_name=entry.queue_name,
            handler=opens.handler,
            since=now,
            probe_id=record_id,
        ):
            self._send(connection, lane, record_id, now + delay_after(opens.policy, 1))

    def went_on(self, connection: Connection, entry: Entry, progress: SubscriberProgress) -> None:
        """An entry will run again, for others of its subscribers perhaps."""
        if carries(entry.headers, PROBE_MARK):
            for circuit in self._of_probes(connection, [entry.record_id]):
                done = progress.get(circuit.handler)
                if done is True:
                    self._close(connection, circuit)
                elif done is False:
                    self._choose(connection, circuit, self._clock.now(), circuit.failures)

    # -- links ------------------------------------------------------------------------------------

    def ended(self, connection: Connection, endings: Sequence[Ending], *, lent: bool) -> None:
        """See `Link.ended`.

        After another end than success, nodes choose the next probe. It may have been removed by a
        caller's transaction, which is not to lock rows that others are about to write.
        """
        del lent
        states = {one.entry.record_id: one.state for one in endings}
        probes = {one.entry.record_id for one in endings if _is_probe(one.entry.headers)}
        for circuit in self._of_probes(connection, list(states)):
            succeeded = states[circuit.probe_id] is State.PROCESSED
            if (succeeded and circuit.probe_id in probes) or self._is_empty(connection, circuit):
                self._close(connection, circuit)

    def renewed(self, connection: Connection, old: Entry, new_id: int) -> None:
        """See `Link.renewed`. The copy is the probe now."""
        for circuit in self._of_probes(connection, [old.record_id]):
            self._become(connection, circuit, new_id, circuit.failures)

    def retried(self, connection: Connection, retry: RetryByHand, *, lent: bool) -> None:
        """See `Link.retried`. The copy is an entry like any other."""

    def discarded(self, connection: Connection, old: Entry, *, lent: bool) -> None:
        """See `Link.discarded`. Another one is chosen already."""

    def _of_probes(self, connection: Connection, ids: Sequence[int]) -> list[Row[Any]]:
        return self._circuits.of_probes(connection, self._table, ids)

    # -- questions of nodes -----------------------------------------------------------------------

    def all(self, connection: Connection) -> list[Row[Any]]:
        """The open circuits, by queue and handler."""
        return self._circuits.of_table(connection, self._table)

    def without_probe(self, connection: Connection) -> list[Row[Any]]:
        """The open circuits whose probe is nowhere, replaced, or in the lane of another circuit.

        A probe that was replaced is the probe still if no other entry waits.
        """
        circuits = self.all(connection)
        if not circuits:
            return []
        ids = [circuit.probe_id for circuit in circuits]
        found = self._entries.search(
            connection, past=False, where=lambda table: [table.c.record_id.in_(ids)], limit=None
        )
        held = {circuit.lane for circuit in circuits}
        replaced = {
            row.record_id: not _is_probe(row.headers) for row in found if row.lane not in held
        }
        return [
            circuit
            for circuit in circuits
            if replaced.get(circuit.probe_id, True)
            and not (circuit.probe_id in replaced and self._is_empty(connection, circuit))
        ]

    def choose_others(self, connection: Connection) -> None:
        """Give a probe, due now, to each open circuit that has none, if an entry of it is due.

        Close it if no entry waits.
        """
        for circuit in self.without_probe(connection):
            self._choose(connection, circuit, self._clock.now(), circuit.failures)

    # -- changes ----------------------------------------------------------------------------------

    def _choose(
        self, connection: Connection, circuit: Row[Any], date: datetime, failures: int
    ) -> None:
        """Let another entry probe at `date` that is due by then; without any, close the circuit.

        If all are due later, or held by others, nodes choose one once that is over.
        """
        waiting = self._entries.free_page(connection, lane=circuit.lane, limit=CHOICE, due_by=date)
        if not waiting:
            if self._is_empty(connection, circuit):
                self._close(connection, circuit)
            return
        chosen = self._random.choice(waiting).record_id
        if self._become(connection, circuit, chosen, failures):
            self._send(connection, Lane(circuit.lane), chosen, date)

    def _become(
        self, connection: Connection, circuit: Row[Any], record_id: int, failures: int
    ) -> bool:
        return self._circuits.change_probe(
            connection,
            self._table,
            circuit.lane,
            old_id=circuit.probe_id,
            new_id=record_id,
            failures=failures,
        )

    def _is_empty(self, connection: Connection, circuit: Row[Any]) -> bool:
        """Whether no entry waits for a circuit."""
        return not self._entries.page(connection, lane=circuit.lane, after=None, limit=1)

    def _close(self, connection: Connection, circuit: Row[Any]) -> None:
        self._circuits.close(connection, self._table, circuit.lane, probe_id=circuit.probe_id)

    def _send(self, connection: Connection, lane: Lane, record_id: int, date: datetime) -> None:
        """Let an entry of a circuit's lane run at `date`, where a node then brings it."""
        [row] = self._entries.lock_free(connection, ids=[record_id])
        values = {"effective_date": date, "headers": with_marks(row.headers, {PROBE_MARK: ""})}
        self._entries.change(connection, record_id=record_id, values=values)
        self._entries.change_lane(
            connection, ids=[record_id], from_lane=lane, to_lane=RETURNING, suspect_lane=RETURNING
        )


def _is_probe(headers: str | None) -> bool:
    """Whether an entry that a circuit names as its probe is one still."""
    return texts(headers).get(_NAME) == ""

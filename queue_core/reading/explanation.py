"""Why an entry is not running: all reasons that stand in the tables, each by its own function.

A further cause is one function in `CAUSES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec
from sqlalchemy import Connection

from queue_core.errors import EntryNotFoundError, PayloadNotDecodableError
from queue_core.links.links import carries
from queue_core.links.ordering import KEY_MARK, order_key_of
from queue_core.model.entry import Entry, State, SubscriberProgress, Waiting
from queue_core.model.lanes import PARKED, PROBES, SUSPECT, circuit_lane, is_node_lane, is_paused
from queue_core.model.pause import Pause, is_in_force
from queue_core.reading.nodes import NodeStatus, Served
from queue_core.reading.nodes import status as node_status
from queue_core.reading.open_circuits import OpenCircuit, read_circuits
from queue_core.runtime.callers import CallersConnection
from queue_core.storage.filter import Filter
from queue_core.storage.pauses import StoredPauses
from queue_core.storage.rows import integer
from queue_core.storage.store import Store
from sql.families import NODES
from sql.statements import nodes

Fact: TypeAlias = str | int | float | datetime | None


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One cause.

    Attributes:
        code: Names the kind of cause, for programs: `paused`, `not-due`, and so on.
        text: A sentence.
        facts: What the sentence tells, by name. Dates are aware, in UTC.
    """

    code: str
    text: str
    facts: dict[str, Fact] = {}


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why an entry is where it is.

    Attributes:
        table: The main table.
        record_id: The id of the entry.
        queue_name: The bus, or `service:queue`.
        class_name: The name of its event type.
        state: Its state.
        reasons: At least one, the most important first.
    """

    table: str
    record_id: int
    queue_name: str
    class_name: str
    state: State
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return "\n".join(reason.text for reason in self.reasons)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """An entry, and what else stands in the tables at this moment."""

    store: Store
    connection: Connection
    entry: Entry
    now: datetime
    pauses: Sequence[Pause]
    """Those of its queue and of its queue's handlers that have not ended."""
    circuits: Sequence[OpenCircuit]
    """The open ones of its queue, if it may wait for one."""
    nodes: Sequence[NodeStatus]

    @property
    def progress(self) -> SubscriberProgress:
        """How far its subscribers are; nothing, if that can't be read."""
        try:
            return self.entry.progress
        except PayloadNotDecodableError:
            return {}

    @property
    def serving(self) -> list[tuple[NodeStatus, Served]]:
        """The live nodes that serve its queue."""
        return [
            (node, served)
            for node in self.nodes
            if is_live(node)
            for served in node.serves
            if served.get("table") == self.store.config.table
            and self.entry.queue_name in served["queues"]
        ]

    def node(self, name: str | None) -> NodeStatus | None:
        """The node of this name, if it has a row."""
        return next((node for node in self.nodes if node.name == name), None)


def is_live(node: NodeStatus) -> bool:
    """Whether a node lives and beats, by its row."""
    return node.lease_left_seconds is not None and node.lease_left_seconds >= 0


def explain(
    store: Store,
    record_id: int,
    queue_name: str | None = None,
    *,
    connection: CallersConnection | None = None,
) -> Explanation:
    """Why this entry, of one queue or of any (None), is not running, or has ended.

    Raises EntryNotFoundError.
    """
    record_id, now = integer(record_id, "record_id"), store.now(connection)
    label = queue_name or store.config.table
    where = Filter(record_ids=[record_id]).conditions(queue_name)
    all_nodes = store.database.dialect.statements_for(NODES)().all_nodes
    # Not by the caller's connection, whose search path may be another one.
    rows = store.reaching(lambda: store.database.fetch(all_nodes))
    stored = StoredPauses(store)

    def work(inner: Connection) -> Explanation:
        # History second: an entry may end in between.
        found = store.find(inner, where=where) or store.find(inner, past=True, where=where)
        if not found:
            raise EntryNotFoundError(
                f"{label}: there is no entry {record_id}, neither live nor in history.",
                record_id=record_id,
                queue_name=queue_name,
            )
        entry = found[0]
        case = Case(
            store=store,
            connection=inner,
            entry=entry,
            now=now,
            pauses=[
                pause
                for pause in stored.all(inner)
                if pause.queue_name == entry.queue_name and is_in_force(pause, now)
            ],
            circuits=read_circuits(store, entry.queue_name, inner) if is_paused(entry.lane) else (),
            nodes=[node_status(row, now) for row in rows],
        )
        return Explanation(
            table=store.config.table,
            record_id=entry.record_id,
            queue_name=entry.queue_name,
            class_name=entry.class_name,
            state=entry.processing_state,
            reasons=tuple(_reasons(case)),
        )

    return store.read(connection, label, work)


def _reasons(case: Case) -> list[Reason]:
    if case.entry.processing_state.terminal:
        return [_ended(case)]
    if case.entry.processing_state is State.IN_PROCESSING:
        return [_running(case)]
    return [reason for cause in CAUSES for reason in cause(case)] or [_ready(case)]


def _ended(case: Case) -> Reason:
    entry = case.entry
    state, at = entry.processing_state, entry.finished_date
    facts: dict[str, Fact] = {"state": state.value, "finished_date": at}
    if state is State.REAPED:
        copy = _copy_of(case)
        goes_on = f" Its copy {copy} goes on: explain that one." if copy is not None else ""
        return Reason(
            code="reaped",
            text=f"Its node {entry.processing_owner or entry.lane} ended before it, at {_moment(at)}.{goes_on}",
            facts={**facts, "copy": copy},
        )
    error = (entry.last_error or "").partition("\n")[0]
    return Reason(
        code="ended",
        text=f"It ended {state.value} at {_moment(at)}{f': {error}' if error else ''}.",
        facts={**facts, "error": error or None},
    )


def _copy_of(case: Case) -> int | None:
    """The id of the entry that a reaped one goes on as."""
    entry = case.entry
    origin = entry.origin_id if entry.origin_id is not None else entry.record_id
    for past in (True, False):
        found = case.store.search(
            case.connection,
            past=past,
            where=lambda table: [
                table.c.origin_id == origin,
                table.c.record_id > entry.record_id,
            ],
            limit=1,
        )
        if found:
            return found[0].record_id
    return None


def _running(case: Case) -> Reason:
    name, until = case.entry.processing_owner, case.entry.processing_available_date
    node = case.node(name)
    claim = timedelta(seconds=case.store.config.claim_seconds)
    since = None if until is None else until - claim
    facts: dict[str, Fact] = {"node": name, "since": since}
    if node is not None and is_live(node):
        return Reason(
            code="running",
            text=f"Node {name} ({node.hostname}, pid {node.pid}) has had it since {_moment(since)}: its handlers run, or "
            "it waits there for a free thread.",
            facts=facts,
        )
    return Reason(
        code="node-not-live",
        text=f"It ran on node {name}, which {_whereabouts(node)}: a live node takes it over once the lease has ended.",
        facts={**facts, "node_state": None if node is None else node.state},
    )


def _paused(case: Case) -> Iterator[Reason]:
    known = {
        name
        for _, served in case.serving
        for names in [served.get("subscribers", {}).get(case.entry.class_name, [])]
        if not isinstance(names, str)
        for name in names
    }
    for pause in case.pauses:
        if pause.order_key is not None and (
            not carries(case.entry.headers, KEY_MARK)
            or pause.order_key != order_key_of(case.entry.headers)
        ):
            continue
        waits = case.entry.lane == pause.lane or pause.handler in known
        if pause.handler is not None and (
            not waits or case.progress.get(pause.handler) is not None
        ):
            continue
        of = "The queue" if pause.handler is None else f"Its handler {pause.handler}"
        of = of if pause.order_key is None else f"Its order key {pause.order_key}"
        why = f" ({pause.reason})" if pause.reason else ""
        until = f"until {_moment(pause.until)}" if pause.until else "until it is resumed"
        yield Reason(
            code="paused",
            text=f"{of} is paused by {pause.paused_by} since {_moment(pause.since)}, {until}{why}.",
            facts={
                "handler": pause.handler,
                "order_key": pause.order_key,
                "paused_by": pause.paused_by,
                "reason": pause.reason,
                "since": pause.since,
                "until": pause.until,
            },
        )
    lanes = {PROBES, *(one.lane for one in case.pauses)}
    lanes |= {circuit_lane(one.queue_name, one.handler) for one in case.circuits}
    if is_paused(case.entry.lane) and case.entry.lane not in lanes:
        yield Reason(
            code="resumed",
            text="It was set aside in a pause that has ended, or behind a circuit that is closed: a live node of this "
            "queue's table brings it back within a second.",
        )


def _circuit_open(case: Case) -> Iterator[Reason]:
    for circuit in case.circuits:
        if circuit_lane(circuit.queue_name, circuit.handler) == case.entry.lane:
            date = circuit.probe_date
            when = "now" if date is None else f"at {_moment(date)}"
            yield Reason(
                code="circuit-open",
                text=f"It has failed, and the circuit of {circuit.handler} is open since {_moment(circuit.since)}: failed "
                f"entries wait until a probe succeeds. {_times(circuit.failures).capitalize()} it has failed so far. The "
                f"next probe, entry {circuit.probe_id}, runs {when}.",
                facts={
                    "handler": circuit.handler,
                    "since": circuit.since,
                    "failures": circuit.failures,
                    "probe_id": circuit.probe_id,
                    "probe_date": date,
                },
            )


def _parked(case: Case) -> Iterator[Reason]:
    entry = case.entry
    if entry.lane == PARKED:
        days = case.store.config.unknown_retention_days
        yield Reason(
            code="parked",
            text=f"A node has set it aside, because it knew no handler of {entry.class_name} in {entry.queue_name}. It "
            f"runs once a node knows one, and ends FAILED after {days:g} days.",
            facts={"class_name": entry.class_name, "queue_name": entry.queue_name},
        )


def _not_served(case: Case) -> Iterator[Reason]:
    entry, serving = case.entry, case.serving
    if not serving:
        yield Reason(
            code="queue-not-served",
            text=f"No live node serves {entry.queue_name}: none is started, or none has started this queue.",
            facts={"queue_name": entry.queue_name},
        )
    # A node of a notification service tells no subscribers: its queues may take any type.
    elif all(
        "subscribers" in served and entry.class_name not in served.get("types", [])
        for _, served in serving
    ):
        yield Reason(
            code="type-unknown",
            text=f"No live node of {entry.queue_name} knows the type {entry.class_name}.",
            facts={"class_name": entry.class_name},
        )


def _behind_another(case: Case) -> Iterator[Reason]:
    entry, ordering = case.entry, case.store.ordering
    if entry.processing_state is not State.WAITING or not carries(entry.headers, ordering.mark):
        return
    key = ordering.key_of(entry.queue_name, entry.headers)
    head = ordering.statements.head(case.connection, key)
    facts: dict[str, Fact] = {"order_key": key.order_key}
    if head is None:
        yield Reason(
            code="behind-another",
            text=f"It waits for its turn among the entries of the order key {key.order_key}, which starts within a poll "
            "interval of a live node.",
            facts=facts,
        )
    elif head.held_since is None:
        yield Reason(
            code="behind-another",
            text=f"It waits behind entry {head.record_id}, which has the order key {key.order_key}, too.",
            facts={**facts, "record_id": head.record_id},
        )
    else:
        yield Reason(
            code="key-held",
            text=f"Entry {head.record_id} of its order key {key.order_key} failed at {_moment(head.held_since)}, and holds "
            "the key: retry that one, or discard it.",
            facts={**facts, "record_id": head.record_id, "since": head.held_since},
        )


def _waits_for_others(case: Case) -> Iterator[Reason]:
    if case.entry.processing_state is not State.WAITING:
        return
    for wait in case.store.dependencies.waits_of(case.connection, [case.entry.record_id]):
        facts: dict[str, Fact] = {"record_id": wait.awaited_id, "on_failed": wait.on_failed}
        if wait.awaited_state is None:
            yield Reason(
                code="waits-for-entry",
                text=f"It waits until entry {wait.awaited_id} has ended.",
                facts=facts,
            )
        elif wait.look_date is None and wait.awaited_state != State.PROCESSED:
            yield Reason(
                code="dependency-failed",
                text=f"Entry {wait.awaited_id}, which it waits for, ended {wait.awaited_state}, and it is held until "
                "somebody decides: retry that one, or release or remove this one.",
                facts={**facts, "state": wait.awaited_state},
            )


def _suspect(case: Case) -> Iterator[Reason]:
    if case.entry.lane == SUSPECT:
        crashes = case.entry.crash_count
        yield Reason(
            code="suspect",
            text=f"It was running when its process died, {_times(crashes)} so far. It is under suspicion: each node runs one "
            "such entry at a time, after all others.",
            facts={"crash_count": crashes},
        )


def _waits_for_retry(case: Case) -> Iterator[Reason]:
    entry = case.entry
    if entry.effective_date <= case.now:
        return
    waiting = {name: one for name, one in case.progress.items() if isinstance(one, Waiting)}
    for name, one in waiting.items():
        yield Reason(
            code="waits-for-retry",
            text=f"{name} has failed {_times(one.failures)} and runs again at {_moment(one.due)}.",
            facts={"subscriber": name, "failures": one.failures, "until": one.due},
        )
    if entry.error_count and not waiting:
        yield Reason(
            code="waits-for-retry",
            text=f"It has failed {_times(entry.error_count)} and runs again at {_moment(entry.effective_date)}.",
            facts={"failures": entry.error_count, "until": entry.effective_date},
        )


def _not_due(case: Case) -> Iterator[Reason]:
    date = case.entry.effective_date
    if date > case.now and not case.entry.error_count:
        yield Reason(
            code="not-due", text=f"It is not due before {_moment(date)}.", facts={"until": date}
        )


def _lane_of_absent_node(case: Case) -> Iterator[Reason]:
    lane = case.entry.lane
    node = case.node(lane)
    if is_node_lane(lane) and (node is None or not is_live(node)):
        yield Reason(
            code="node-not-live",
            text=f"It waits in the lane of node {lane}, which {_whereabouts(node)}: a live node takes it over once the "
            "lease has ended.",
            facts={"node": lane, "node_state": None if node is None else node.state},
        )


def _ready(case: Case) -> Reason:
    lane = case.entry.lane
    names = [lane] if is_node_lane(lane) else sorted({node.name for node, _ in case.serving})
    return Reason(
        code="ready",
        text=f"It has been due since {_moment(case.entry.effective_date)} and waits its turn on {', '.join(names)}: entries of "
        "earlier dates go first, and the node takes what its threads have room for.",
        facts={"since": case.entry.effective_date, "nodes": ", ".join(names)},
    )


Cause: TypeAlias = Callable[[Case], Iterator[Reason]]
CAUSES: tuple[Cause, ...] = (
    _paused,
    _circuit_open,
    _parked,
    _not_served,
    _behind_another,
    _waits_for_others,
    _suspect,
    _waits_for_retry,
    _not_due,
    _lane_of_absent_node,
)
"""Why an AVAILABLE entry does not run, the most important causes first."""


def _whereabouts(node: NodeStatus | None) -> str:
    if node is None:
        return "has no row"
    if node.state == nodes.LIVE:
        return f"has been silent since {_moment(node.beat_date)}"
    return f"is {node.state} since {_moment(node.beat_date)}"


def _moment(date: datetime | None) -> str:
    return "an unknown date" if date is None else f"{date:%Y-%m-%d %H:%M:%S} UTC"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"

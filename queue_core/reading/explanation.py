"""The reasons why an entry is not running: all that stand in the tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec
from sqlalchemy import Connection

from queue_core.errors import EntryNotFoundError
from queue_core.links.groups import group_of
from queue_core.links.links import carries
from queue_core.model.lanes import is_node_lane, is_paused
from queue_core.model.pause import is_in_force
from queue_core.model.states import State
from queue_core.reading.case import Case, is_live
from queue_core.reading.causes import CAUSES
from queue_core.reading.nodes import status as node_status
from queue_core.reading.open_circuits import read_circuits
from queue_core.reading.phrases import moment, whereabouts
from queue_core.reading.reason import Fact, Reason
from queue_core.runtime.callers import CallersConnection
from queue_core.storage.arguments import storable_integer
from queue_core.storage.filter import Filter
from queue_core.storage.groups import status_of
from queue_core.storage.limits import StoredLimits
from queue_core.storage.pauses import StoredPauses
from queue_core.storage.store import Store
from sql.families import NODES


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an entry, and the reasons for it.

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


def explain(
    store: Store,
    record_id: int,
    queue_name: str | None = None,
    *,
    connection: CallersConnection | None = None,
) -> Explanation:
    """The reasons why this entry, of one queue or of any (None), is not running, or has ended.

    Raises EntryNotFoundError.
    """
    record_id, now = storable_integer(record_id, "record_id"), store.now(connection)
    label = queue_name or store.config.table
    where = Filter(record_ids=[record_id]).conditions(queue_name)
    all_nodes = store.database.dialect.statements_for(NODES)().all_nodes
    # Not by the caller's connection, whose search path may be another one.
    rows = store.reaching(lambda: store.database.fetch(all_nodes))
    stored, limits = StoredPauses(store), StoredLimits(store)

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
            limit=next(
                (one for one in limits.all(inner) if one.queue_name == entry.queue_name), None
            ),
            circuits=(
                read_circuits(store, entry.queue_name, inner) if is_paused(entry.lane) else ()
            ),
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
        reasons = [_ended(case)]
    elif case.entry.processing_state is State.IN_PROCESSING:
        reasons = [_running(case)]
    else:
        reasons = [reason for cause in CAUSES for reason in cause(case)] or [_ready(case)]
    return [*reasons, *_open_group(case)]


def _open_group(case: Case) -> Iterator[Reason]:
    """The group of a member, if its callbacks are still to come."""
    groups = case.store.groups
    group_id = group_of(case.entry.headers) if carries(case.entry.headers, groups.mark) else None
    for row in [] if group_id is None else groups.statements.read(case.connection, [group_id]):
        if row.completed_date is not None:
            continue
        group = status_of(row)
        sealed = "" if group.sealed_date else " The group is not sealed yet."
        yield Reason(
            code="group-open",
            text=(
                f"It is a member of group {group_id}: {group.live:,} of {group.total:,} members "
                f"have not ended, and the callbacks wait for them.{sealed}"
            ),
            facts={
                "group_id": group_id,
                "live": group.live,
                "total": group.total,
                "sealed_date": group.sealed_date,
            },
        )


def _ended(case: Case) -> Reason:
    entry = case.entry
    state, at = entry.processing_state, entry.finished_date
    facts: dict[str, Fact] = {"state": state.value, "finished_date": at}
    if state is State.REAPED:
        copy = _copy_of(case)
        goes_on = f" Its copy {copy} goes on: explain that one." if copy is not None else ""
        return Reason(
            code="reaped",
            text=(
                f"Its node {entry.processing_owner or entry.lane} ended before it, at "
                f"{moment(at)}.{goes_on}"
            ),
            facts={**facts, "copy": copy},
        )
    error = (entry.last_error or "").partition("\n")[0]
    return Reason(
        code="ended",
        text=f"It ended {state.value} at {moment(at)}{f': {error}' if error else ''}.",
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
            text=(
                f"Node {name} ({node.hostname}, pid {node.pid}) has had it since {moment(since)}: "
                "its handlers run, or it waits there for a free thread."
            ),
            facts=facts,
        )
    return Reason(
        code="node-not-live",
        text=(
            f"It ran on node {name}, which {whereabouts(node)}: a live node takes it over once the "
            "lease has ended."
        ),
        facts={**facts, "node_state": None if node is None else node.state},
    )


def _ready(case: Case) -> Reason:
    lane = case.entry.lane
    names = [lane] if is_node_lane(lane) else sorted({node.name for node, _ in case.serving})
    return Reason(
        code="ready",
        text=(
            f"It has been due since {moment(case.entry.due_since)} and waits its turn on "
            f"{', '.join(names)}: entries with earlier dates go first, and the node takes only as "
            "many as its threads have room for."
        ),
        facts={"since": case.entry.due_since, "nodes": ", ".join(names)},
    )

"""The causes for which an entry does not run: each is one function in `CAUSES`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from sqlalchemy import Row

from queue_core.links.links import carries
from queue_core.links.ordering import KEY_MARK, order_key_of
from queue_core.links.verdict import UNKNOWN
from queue_core.model.entry import RetryDue
from queue_core.model.lanes import (
    PARKED,
    RETURNING,
    SUSPECT,
    WAITING_LANE,
    circuit_lane,
    is_node_lane,
    is_paused,
)
from queue_core.model.pause import Pause
from queue_core.model.states import State
from queue_core.reading.case import Case, is_live
from queue_core.reading.limit_causes import limited
from queue_core.reading.phrases import moment, times, whereabouts
from queue_core.reading.reason import Fact, Reason


def _paused(case: Case) -> Iterator[Reason]:
    known = _handlers(case)
    for pause in case.pauses:
        if not _concerns(pause, case, known):
            continue
        of = "The queue" if pause.handler is None else f"Its handler {pause.handler}"
        of = of if pause.order_key is None else f"Its order key {pause.order_key}"
        why = f" ({pause.reason})" if pause.reason else ""
        until = f"until {moment(pause.until)}" if pause.until else "until it is resumed"
        yield Reason(
            code="paused",
            text=f"{of} is paused by {pause.paused_by} since {moment(pause.since)}, {until}{why}.",
            facts={
                "handler": pause.handler,
                "order_key": pause.order_key,
                "paused_by": pause.paused_by,
                "reason": pause.reason,
                "since": pause.since,
                "until": pause.until,
            },
        )


def _handlers(case: Case) -> set[str]:
    """The handlers of the entry's type, as live nodes have published them."""
    return {
        name
        for _, served in case.serving
        for names in [served.get("subscribers", {}).get(case.entry.class_name, [])]
        if not isinstance(names, str)
        for name in names
    }


def _concerns(pause: Pause, case: Case, known: set[str]) -> bool:
    """Whether a pause holds up the entry, for which there are the handlers `known`."""
    headers = case.entry.headers
    if pause.order_key is not None and (
        not carries(headers, KEY_MARK) or pause.order_key != order_key_of(headers)
    ):
        return False
    if pause.handler is None:
        return True
    waits = case.entry.lane == pause.lane or pause.handler in known
    return waits and not isinstance(case.progress.get(pause.handler), bool)


def _resumed(case: Case) -> Iterator[Reason]:
    lanes = {RETURNING, *(one.lane for one in case.pauses)}
    lanes |= {circuit_lane(one.queue_name, one.handler) for one in case.circuits}
    if is_paused(case.entry.lane) and case.entry.lane not in lanes:
        yield Reason(
            code="resumed",
            text=(
                "It was set aside in a pause that has ended, or behind a circuit that is closed: a "
                "live node of this queue's table brings it back within a second."
            ),
        )


def _circuit_open(case: Case) -> Iterator[Reason]:
    for circuit in case.circuits:
        if circuit_lane(circuit.queue_name, circuit.handler) == case.entry.lane:
            date = circuit.probe_date
            when = "now" if date is None else f"at {moment(date)}"
            yield Reason(
                code="circuit-open",
                text=(
                    f"It has failed, and the circuit of {circuit.handler} is open since "
                    f"{moment(circuit.since)}: failed entries wait until a probe succeeds. Its "
                    f"failures so far: {circuit.failures:,}. The next probe, entry "
                    f"{circuit.probe_id}, runs {when}."
                ),
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
            text=(
                f"A node has set it aside, because it knew no handler of {entry.class_name} in "
                f"{entry.queue_name}. It runs once a node knows one, and ends FAILED after "
                f"{days:g} days."
            ),
            facts={"class_name": entry.class_name, "queue_name": entry.queue_name},
        )


def _not_served(case: Case) -> Iterator[Reason]:
    entry, serving = case.entry, case.serving
    if not serving:
        yield Reason(
            code="queue-not-served",
            text=(
                f"No live node serves {entry.queue_name}: none is started, or none has started "
                "this queue."
            ),
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
        first = ordering.statements.first(case.connection, key)
        if first is not None and first.lane == WAITING_LANE:
            if first.record_id != entry.record_id:
                yield Reason(
                    code="behind-another",
                    text=(
                        f"It waits behind entry {first.record_id}, which has the order key "
                        f"{key.order_key}, too, and waits for others."
                    ),
                    facts={**facts, "record_id": first.record_id},
                )
            return
        yield Reason(
            code="behind-another",
            text=(
                f"It waits for its turn among the entries of the order key {key.order_key}, which "
                "starts within a poll interval of a live node."
            ),
            facts=facts,
        )
    elif head.held_since is None:
        yield Reason(
            code="behind-another",
            text=(
                f"It waits behind entry {head.record_id}, which has the order key {key.order_key}, "
                "too."
            ),
            facts={**facts, "record_id": head.record_id},
        )
    else:
        yield Reason(
            code="key-held",
            text=(
                f"Entry {head.record_id} of its order key {key.order_key} failed at "
                f"{moment(head.held_since)}, and holds the key: retry that one, or discard it."
            ),
            facts={**facts, "record_id": head.record_id, "since": head.held_since},
        )


def _waits_for_others(case: Case) -> Iterator[Reason]:
    if case.entry.processing_state is not State.WAITING:
        return
    waits = case.store.dependencies.waits_of(case.connection, [case.entry.record_id])
    if waits and all(_is_over(wait) for wait in waits):
        yield Reason(
            code="waits-over",
            text=(
                "All entries that it waits for have ended: a live node of this queue's table lets "
                "it run or cancels it, as its post says."
            ),
        )
    for wait in waits:
        facts: dict[str, Fact] = {"record_id": wait.awaited_id, "on_failed": wait.on_failed}
        if wait.awaited_state is None:
            yield Reason(
                code="waits-for-entry",
                text=f"It waits until entry {wait.awaited_id} has ended.",
                facts=facts,
            )
        elif not _is_over(wait):
            how, decisions = (
                ("was deleted from history before its end was noted", "release or remove this one")
                if wait.awaited_state == UNKNOWN
                else (
                    f"ended {wait.awaited_state}",
                    "retry that one, or release or remove this one",
                )
            )
            yield Reason(
                code="dependency-failed",
                text=(
                    f"Entry {wait.awaited_id}, which it waits for, {how}, and it is held until "
                    f"somebody decides: {decisions}."
                ),
                facts={**facts, "state": wait.awaited_state},
            )


def _is_over(wait: Row[Any]) -> bool:
    """Whether a wait keeps its entry no longer: it is not open, and nobody has to decide."""
    return wait.awaited_state is not None and (
        wait.look_date is not None or wait.awaited_state == State.PROCESSED
    )


def _suspect(case: Case) -> Iterator[Reason]:
    if case.entry.lane == SUSPECT:
        crashes = case.entry.crash_count
        yield Reason(
            code="suspect",
            text=(
                f"It was running when its process died, {times(crashes)} so far. It is under "
                "suspicion: each node runs one such entry at a time, after all others."
            ),
            facts={"crash_count": crashes},
        )


def _waits_for_retry(case: Case) -> Iterator[Reason]:
    entry = case.entry
    if entry.effective_date <= case.now:
        return
    waiting = {name: one for name, one in case.progress.items() if isinstance(one, RetryDue)}
    for name, one in waiting.items():
        yield Reason(
            code="waits-for-retry",
            text=f"{name} has failed {times(one.failures)} and runs again at {moment(one.due)}.",
            facts={"subscriber": name, "failures": one.failures, "until": one.due},
        )
    if entry.error_count and not waiting:
        yield Reason(
            code="waits-for-retry",
            text=(
                f"It has failed {times(entry.error_count)} and runs again at "
                f"{moment(entry.effective_date)}."
            ),
            facts={"failures": entry.error_count, "until": entry.effective_date},
        )


def _not_due(case: Case) -> Iterator[Reason]:
    date = case.entry.effective_date
    if date > case.now and not case.entry.error_count:
        yield Reason(
            code="not-due", text=f"It is not due before {moment(date)}.", facts={"until": date}
        )


def _lane_of_absent_node(case: Case) -> Iterator[Reason]:
    lane = case.entry.lane
    node = case.node(lane)
    if is_node_lane(lane) and (node is None or not is_live(node)):
        yield Reason(
            code="node-not-live",
            text=(
                f"It waits in the lane of node {lane}, which {whereabouts(node)}: a live node "
                "takes it over once the lease has ended."
            ),
            facts={"node": lane, "node_state": None if node is None else node.state},
        )


Cause: TypeAlias = Callable[[Case], Iterator[Reason]]
CAUSES: tuple[Cause, ...] = (
    _paused,
    _resumed,
    _circuit_open,
    limited,
    _parked,
    _not_served,
    _behind_another,
    _waits_for_others,
    _suspect,
    _waits_for_retry,
    _not_due,
    _lane_of_absent_node,
)
"""The reasons why an AVAILABLE entry does not run, the most important first."""

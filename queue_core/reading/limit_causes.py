"""The limits that an entry waits for: of its queue, or of its limit key."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from queue_core.links.limit_keys import limit_key_of
from queue_core.model.lanes import is_keyed, is_limited
from queue_core.model.limit import Limit
from queue_core.model.rate import Rate
from queue_core.reading.case import Case
from queue_core.reading.phrases import moment
from queue_core.reading.reason import Reason
from queue_core.storage.limits import StoredLimits

NAMED = 5
"""Entries that hold places, of those that are told by their ids."""


def limited(case: Case) -> Iterator[Reason]:
    """The entry was set aside at a limit."""
    lane, limit = case.entry.lane, case.limit
    if is_keyed(lane) and limit is not None and limit.limits_keys:
        yield _of_key(case, limit)
    elif is_limited(lane) and limit is not None and limit.limits_queue:
        yield _of_queue(case, limit)
    elif is_limited(lane) or is_keyed(lane):
        yield Reason(
            code="unlimited",
            text=(
                "It was set aside at a limit that has ended: a live node of this queue's table "
                "brings it back within a second."
            ),
        )


def _of_queue(case: Case, limit: Limit) -> Reason:
    held = case.store.statements.held_places(
        case.connection, lane=case.entry.lane, due_by=case.store.claims_due_by
    )
    ids = [record_id for claims in held.values() for record_id, _ in claims]
    rate = None if limit.rate is None else Rate(limit.rate, limit.per, limit.burst)
    until = _until(case, rate, StoredLimits(case.store).arrival(case.connection, limit))
    return Reason(
        code="limited",
        text=(
            f"The queue is limited to {limit.told} by {limit.limited_by} since "
            f"{moment(limit.since)}. Running now: {len(ids):,}{_in_brackets(ids)}. It waits for a "
            f"place.{_told(until)}"
        ),
        facts={
            "concurrency": limit.concurrency,
            "per_node": limit.per_node,
            "rate": limit.rate,
            "per_seconds": limit.per.total_seconds(),
            "burst": limit.burst,
            "running": len(ids),
            "running_ids": _named(ids),
            "until": until,
            "limited_by": limit.limited_by,
            "since": limit.since,
        },
    )


def _of_key(case: Case, limit: Limit) -> Reason:
    lane, key = case.entry.lane, limit_key_of(case.entry.headers)
    statements = case.store.statements
    places = statements.key_places(case.connection, lanes=[lane])
    ids = [record_id for _, record_id, _, stands in places if stands]
    rate = (
        None
        if limit.rate_per_key is None
        else Rate(limit.rate_per_key, limit.per, limit.burst_per_key)
    )
    until = _until(case, rate, statements.arrival_of_key(case.connection, lane=lane))
    return Reason(
        code="limited",
        text=(
            f"The queue is limited to {limit.told} by {limit.limited_by} since "
            f"{moment(limit.since)}. Running now with the limit key {key}: "
            f"{len(ids):,}{_in_brackets(ids)}. It waits for a place of its key.{_told(until)}"
        ),
        facts={
            "limit_key": key,
            "per_key": limit.per_key,
            "rate_per_key": limit.rate_per_key,
            "per_seconds": limit.per.total_seconds(),
            "burst_per_key": limit.burst_per_key,
            "running": len(ids),
            "running_ids": _named(ids),
            "until": until,
            "limited_by": limit.limited_by,
            "since": limit.since,
        },
    )


def _until(case: Case, rate: Rate | None, arrival: datetime | None) -> datetime | None:
    """When the rate allows the next start, if it allows none now."""
    if rate is None or arrival is None or rate.free(arrival, case.now):
        return None
    return rate.next(arrival, case.now)


def _told(until: datetime | None) -> str:
    return "" if until is None else f" Its rate allows the next start at {moment(until)}."


def _named(ids: Collection[int]) -> str:
    """The first ids, in order."""
    return ", ".join([*map(str, sorted(ids)[:NAMED]), *(["..."] if len(ids) > NAMED else [])])


def _in_brackets(ids: Collection[int]) -> str:
    return f" ({_named(ids)})" if ids else ""

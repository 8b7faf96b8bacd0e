"""The end of the demo.

It compares history with the posters' ledgers, and the shop's books with both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sqlalchemy import create_engine, select

from queue_core.model.entry import Entry
from queue_core.model.states import State
from stickybus.demo import shop
from stickybus.demo.node import LedgerLine


@dataclass(frozen=True)
class Latency:
    """Milliseconds from an entry's date to the start of its handler.

    A post's date is just before its commit.
    """

    p50: float
    p99: float

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Latency | None:
        """Over entries that have run; None if there are none."""
        waits = sorted(
            round(max(0.0, (entry.started_date - entry.effective_date).total_seconds() * 1_000), 3)
            for entry in entries
            if entry.started_date is not None
        )
        return cls(waits[len(waits) // 2], waits[len(waits) * 99 // 100]) if waits else None


@dataclass
class Verdict:
    """The result of the demo. `faults` is empty if nothing was lost, doubled or invented.

    Of the killed node's entries, `reaped` were ended and copied for any node, the last copy done
    `back_after_seconds` after the kill; `moved` were not due yet and only went to other nodes.
    `rush_per_second`: events of the surviving nodes, from first post to last outcome.
    """

    posted_events: int
    posted_notifications: int
    rolled_back: int
    processed: int = 0
    failed: int = 0
    failed_once: int = 0
    reaped: int = 0
    moved: int = 0
    back_after_seconds: float | None = None
    rush_per_second: float | None = None
    calm_latency_ms: Latency | None = None
    rush_latency_ms: Latency | None = None
    notification_latency_ms: Latency | None = None
    faults: list[str] = field(default_factory=list)


def judge(
    folder: Path,
    ledger: Sequence[LedgerLine],
    events: Sequence[Entry],
    reminders: Sequence[Entry],
    *,
    killed_date: datetime | None,
) -> Verdict:
    """Compare the entries noted as committed with those that ended.

    Both are compared with the work of the handlers.

    `killed_date` (aware): when the doomed node died, None if it did not.
    """
    posts = {line.record_id: line for line in ledger if line.kind != "reminder"}
    notes = {line.record_id: line for line in ledger if line.kind == "reminder"}
    rolled_back = sum(shop.changed_mind(line.number) for line in posts.values())
    verdict = Verdict(len(posts), len(notes), rolled_back)
    ends = _ends(verdict, "event", posts, events)
    for record_id, entry in ends.items():
        _check_end(verdict, shop.event_of(posts[record_id].number), entry)
    past_reminders = _ends(verdict, "notification", notes, reminders)
    for entry in past_reminders.values():
        if entry.processing_state is not State.PROCESSED:
            verdict.faults.append(f"notification {entry.record_id} ended {entry.processing_state}")
    _check_books(verdict, folder, [line.number for line in posts.values()])
    _measure(verdict, posts, ends, past_reminders)
    every = [*ends.values(), *past_reminders.values()]
    verdict.processed = sum(entry.processing_state is State.PROCESSED for entry in every)
    verdict.failed = len(every) - verdict.processed
    verdict.failed_once = sum(
        entry.processing_state is State.PROCESSED and entry.error_count == 1 for entry in every
    )
    verdict.reaped = sum(entry.processing_state is State.REAPED for entry in [*events, *reminders])
    verdict.moved = sum(
        not entry.redispatch_count and shop.DOOMED == entry.creating_owner != entry.lane
        for entry in every
    )
    back = [
        entry.finished_date for entry in every if entry.redispatch_count and entry.finished_date
    ]
    if back and killed_date is not None:
        verdict.back_after_seconds = (max(back) - killed_date).total_seconds()
    return verdict


def _ends(
    verdict: Verdict, what: str, posted: Mapping[int, LedgerLine], history: Sequence[Entry]
) -> dict[int, Entry]:
    """The last entry of each chain, by the id that was posted.

    A chain goes on after each REAPED.
    """
    chains = defaultdict[int, list[Entry]](list)
    for entry in history:
        if entry.processing_state is not State.REAPED:
            chains[entry.origin_id or entry.record_id].append(entry)
    verdict.faults += [f"{what} {key} has no end in history" for key in posted if key not in chains]
    verdict.faults += [f"{what} {key} was never posted" for key in chains if key not in posted]
    verdict.faults += [
        f"{what} {key} ended {len(ends)} times" for key, ends in chains.items() if len(ends) > 1
    ]
    return {key: ends[0] for key, ends in chains.items() if key in posted}


def _check_end(verdict: Verdict, event: shop.Event, entry: Entry) -> None:
    match event:
        case shop.InvoiceRequested():
            expected = State.FAILED, shop.RUNS
        case shop.ParcelShipped(number):
            expected = State.PROCESSED, int(shop.times_out(number))
        case _:
            expected = State.PROCESSED, 0
    found = entry.processing_state, entry.error_count
    if found != expected:
        verdict.faults.append(
            f"{entry.class_name} {event.number} ended {found[0]} after {found[1]} errors, not "
            f"{expected[0]} after {expected[1]}"
        )


def _check_books(verdict: Verdict, folder: Path, numbers: Iterable[int]) -> None:
    """Check that the shop's own tables hold each committed order and payment once."""
    engine = create_engine(shop.database_url(folder))
    events = [shop.event_of(number) for number in numbers]
    with engine.connect() as connection:
        for table, kind in (
            (shop.orders, shop.OrderPlaced),
            (shop.payments, shop.PaymentReceived),
        ):
            booked = sorted(connection.execute(select(table.c.number)).scalars())
            expected = sorted(event.number for event in events if isinstance(event, kind))
            if booked != expected:
                verdict.faults.append(f"{table.name} holds {len(booked)} rows, not {len(expected)}")
    engine.dispose()


def _measure(
    verdict: Verdict,
    posts: Mapping[int, LedgerLine],
    ends: Mapping[int, Entry],
    reminders: Mapping[int, Entry],
) -> None:
    """Rates and latencies of the nodes that lived, and of first runs."""

    def lived(entries: Iterable[Entry]) -> list[Entry]:
        return [
            entry
            for entry in entries
            if entry.creating_owner != shop.DOOMED and not entry.error_count
        ]

    calm = lived(entry for key, entry in ends.items() if posts[key].kind == "calm")
    rush = lived(entry for key, entry in ends.items() if posts[key].kind == "rush")
    verdict.calm_latency_ms, verdict.rush_latency_ms = Latency.of(calm), Latency.of(rush)
    verdict.notification_latency_ms = Latency.of(lived(reminders.values()))
    finished = [entry.finished_date for entry in rush if entry.finished_date is not None]
    if finished:
        took = max(finished) - min(entry.created_date for entry in rush)
        verdict.rush_per_second = len(rush) / max(took.total_seconds(), 1e-3)

"""The demo, as a user starts it: from a shell, in an empty folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, insert

from queue_core.model.entry import Entry
from stickybus.demo import shares, shop
from stickybus.demo.node import LedgerLine
from stickybus.demo.verdict import judge
from stickybus.testing import drain

pytestmark = pytest.mark.timeout(180)


def test_the_demo_loses_nothing_although_a_node_is_killed(tmp_path: Path) -> None:
    report = json.loads(_demo(tmp_path, "entries=240, notifications=30, json=True"))
    assert report["ok"]
    assert report["faults"] == []
    assert (report["posted_events"], report["posted_notifications"]) == (240, 30)
    assert report["processed"] + report["failed"] == 270
    assert report["failed"] == 3
    assert report["failed_once"] == 30
    assert report["reaped"] >= report["killed_with"] > 0
    assert report["truncated"] == 270 + report["reaped"]
    assert report["back_after_seconds"] > 0
    assert report["calm_latency_ms"]["p50"] <= report["calm_latency_ms"]["p99"]


def test_the_demo_in_a_pipe_is_text_without_animation(tmp_path: Path) -> None:
    shown = _demo(tmp_path, "entries=1, notifications=0")
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "cedar is killed" in shown
    assert "Nothing was lost" in shown


def test_the_demo_shares_out_each_number_once() -> None:
    for entries, notifications in ((1, 0), (2, 1), (1000, 50)):
        found = shares(Path(), entries, notifications)
        posted = sorted(number for share in found for number in [*share.calm, *share.rush])
        assert posted == list(range(1, entries + 1))
        assert sorted(number for share in found for number, _ in share.reminders) == list(
            range(1, notifications + 1)
        )
        assert next(share for share in found if share.node_name == shop.DOOMED).rush


def test_an_entry_without_an_end_is_a_fault(tmp_path: Path) -> None:
    ledger, history = _past(tmp_path)
    assert _faults(tmp_path, ledger, history) == []
    lost = _faults(tmp_path, ledger, history[:1])
    assert lost == [f"event {ledger[1].record_id} has no end in history"]


def test_an_entry_that_ended_twice_or_was_never_posted_is_a_fault(tmp_path: Path) -> None:
    ledger, history = _past(tmp_path)
    assert _faults(tmp_path, ledger, [*history, history[1]]) == [
        f"event {ledger[1].record_id} ended 2 times"
    ]
    assert f"event {ledger[1].record_id} was never posted" in _faults(tmp_path, ledger[:1], history)


def test_books_that_differ_from_the_ledger_are_a_fault(tmp_path: Path) -> None:
    ledger, history = _past(tmp_path)
    never_run = LedgerLine(99, 4, "calm")
    assert "shop_payments holds 0 rows, not 1" in _faults(tmp_path, [*ledger, never_run], history)


def _past(folder: Path) -> tuple[list[LedgerLine], list[Entry]]:
    """A ledger and the history of events that a node here has run; none of them is a payment."""
    numbers = (2, 3)
    shop.create_tables(folder)
    bus = shop.open_bus(folder, "amber")
    shop.subscribe(bus, lambda: None)
    events = [shop.event_of(number) for number in numbers]
    engine = create_engine(shop.database_url(folder))
    with engine.begin() as connection:
        placed = [event for event in events if isinstance(event, shop.OrderPlaced)]
        connection.execute(insert(shop.orders), [{"number": order.number} for order in placed])
    engine.dispose()
    ids = bus.post_many(events)
    drain(bus)
    history = bus.history()
    bus.close()
    return [LedgerLine(*line, "rush") for line in zip(ids, numbers, strict=True)], history


def _faults(folder: Path, ledger: list[LedgerLine], history: list[Entry]) -> list[str]:
    return judge(folder, ledger, history, [], killed_date=None).faults


def _demo(folder: Path, arguments: str) -> str:
    """Run the demo as a program that must end with exit code 0, and return its standard output."""
    program = folder / "show.py"
    program.write_text(
        "import stickybus.demo\nif __name__ == '__main__':\n    raise "
        f"SystemExit(stickybus.demo.run({arguments}))\n"
    )
    done = subprocess.run(
        [sys.executable, program], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout

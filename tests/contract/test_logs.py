"""Logs: an event can be followed by its user token, and an error explains itself on request."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from bus.persistent import PersistentBus
from sql.statements import nodes
from stickybus.cli.logs import LogfmtFormatter
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.harness import Recorder, ended, eventually

TOKEN = "4f1c-of-one-request"


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """The facts of all records of one kind."""
    records = [record for record in caplog.records if record.getMessage().split(" ")[0] == event]
    return [{**record.__dict__.get("facts", {}), "level": record.levelname} for record in records]


def run_one(bus: PersistentBus, failures: int) -> int:
    """Post an event whose handler fails so many times, and wait for its end."""
    bus.subscribe(
        "Order", Recorder(failures=failures, error=ValueError("no such customer")), name="book"
    )
    bus.start()
    record_id = bus.post({"number": 1}, event_name="Order", user_token=TOKEN)
    ended(bus)
    return record_id


def test_each_run_of_an_event_tells_its_user_token(
    bus: PersistentBus, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="queue_core"):
        record_id = run_one(bus, failures=1)
        eventually(lambda: told(caplog, "entry_processed"), "the second run is told")

    facts = {"record_id": record_id, "user_token": TOKEN}
    [failed] = told(caplog, "handler_failed")
    [processed] = told(caplog, "entry_processed")
    assert failed.items() >= {**facts, "subscriber": "book", "level": "WARNING"}.items()
    assert (
        processed.items()
        >= {**facts, "queue_name": "bus", "error_count": 1, "level": "DEBUG"}.items()
    )


def test_an_entry_that_is_done_after_retries_is_told_of(
    bus: PersistentBus, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="queue_core"):
        record_id = run_one(bus, failures=2)
        [recovered] = eventually(lambda: told(caplog, "entry_recovered"), "the third run is told")
        caplog.clear()
        bus.post({}, event_name="Order")
        ended(bus, 2)

    facts = {"record_id": record_id, "queue_name": "bus", "user_token": TOKEN, "level": "INFO"}
    assert recovered.items() >= {**facts, "tries": 3}.items()
    assert 0 <= recovered["milliseconds"] < 60_000
    assert told(caplog, "entry_recovered") == []


def test_an_exactly_once_run_is_told_like_any_other(
    bus: PersistentBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus.subscribe("Order", lambda _event, _context: None, name="book", exactly_once=True)
    with caplog.at_level(logging.DEBUG, logger="queue_core"):
        bus.start()
        bus.post({}, event_name="Order", user_token=TOKEN)
        [processed] = eventually(lambda: told(caplog, "entry_processed"), "it is told")
    assert processed["user_token"] == TOKEN


def test_an_entry_that_ends_failed_tells_its_user_token(
    make_bus: MakeBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus = make_bus(max_failure_retries=0, retry=None)
    with caplog.at_level(logging.DEBUG, logger="queue_core"):
        record_id = run_one(bus, failures=9)
        [failed] = eventually(lambda: told(caplog, "entry_failed"), "it is told")
    assert failed.items() >= {"record_id": record_id, "user_token": TOKEN, "level": "ERROR"}.items()
    assert told(caplog, "entry_processed") == []


def test_message_and_traceback_of_an_error_are_told_at_debug_only(
    bus: PersistentBus, caplog: pytest.LogCaptureFixture
) -> None:
    """They may quote a payload, so that whoever wants them in a log asks for them."""
    caplog.handler.setFormatter(LogfmtFormatter())
    with caplog.at_level(logging.DEBUG, logger="queue_core"):
        run_one(bus, failures=1)

    [line] = [line for line in caplog.text.splitlines() if "event=handler_error " in line]
    assert "level=debug" in line
    assert f"user_token={TOKEN}" in line
    assert "ValueError: no such customer" in line
    assert "raise self._error" in line
    [failed] = [line for line in caplog.text.splitlines() if "event=handler_failed " in line]
    assert "no such customer" not in failed


def test_at_info_a_run_that_succeeds_is_silent_and_one_that_fails_tells_no_message(
    bus: PersistentBus, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="queue_core"):
        run_one(bus, failures=1)
    assert (told(caplog, "entry_processed"), told(caplog, "handler_error")) == ([], [])
    assert "no such customer" not in caplog.text


def test_a_node_that_stopped_in_order_is_gone_and_no_warning(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    watcher, other = cluster.join("w"), cluster.join("d")
    with caplog.at_level(logging.INFO, logger="queue_core"):
        other.node.stop()
        while cluster.row("d").state != nodes.GONE:
            cluster.tick(3, watcher)

    [gone] = told(caplog, "node_gone")
    assert (gone["node"], gone["level"]) == ("d", "INFO")
    assert told(caplog, "node_declared_dead") == []


def test_a_node_that_fell_silent_is_declared_dead_with_a_warning(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = cluster.join("w")
    cluster.vanish(cluster.join("d"))
    with caplog.at_level(logging.INFO, logger="queue_core"):
        cluster.live(30, watcher, step=3)

    [dead] = told(caplog, "node_declared_dead")
    assert (dead["node"], dead["level"]) == ("d", "WARNING")
    assert told(caplog, "node_gone") == []

"""The command line: entries, one by one and all that match."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import URL, Connection

from bus.persistent import PersistentBus
from queue_core.model.states import State
from queue_core.reading import bulk, changes
from stickybus.testing import drain
from tests import requirements as needs
from tests.acceptance.cli.running import Cli
from tests.contract.harness import eventually

# -- entries -------------------------------------------------------------------------------------


def test_entries_are_listed_by_filters_and_without_payloads(cli: Cli, bus: PersistentBus) -> None:
    bus.post({"secret": "swordfish"}, event_name="A", search_key1=1, search_key2=2)
    bus.post({}, event_name="B", search_key1=1)
    bus.post({}, event_name="A")

    def ids(*options: str) -> list[int]:
        return [entry["record_id"] for entry in cli("entries", "list", "--json", *options).json]

    assert ids() == [1, 2, 3]
    assert ids("--event", "A") == [1, 3]
    assert ids("--key1", "1") == [1, 2]
    assert ids("--key2", "2") == [1]
    assert ids("--limit", "2") == [1, 2]
    assert ids("--state", "IN_PROCESSING") == []
    assert ids("--queue", "other") == []
    for command in (("entries", "list"), ("entries", "show", "1")):
        for options in ((), ("--json",)):
            assert "swordfish" not in cli(*command, *options).out
            assert "swordfish" in cli(*command, "--payload", *options).out


def test_an_entry_is_shown_live_and_in_history(cli: Cli, bus: PersistentBus) -> None:
    bus.subscribe("Bad", lambda event: event["missing"], name="bad")
    record_id = bus.post({}, event_name="Bad", headers={"trace": "[bold]7"})
    assert cli("entries", "show", str(record_id), "--json").json["processing_state"] == "AVAILABLE"
    drain(bus)
    ended = cli("entries", "show", str(record_id), "--json").json
    assert (ended["processing_state"], ended["headers"]) == ("FAILED", {"trace": "[bold]7"})
    shown = cli("entries", "show", str(record_id)).out
    assert "KeyError" in shown
    assert "[bold]7" in shown
    assert "no entry 999" in cli("entries", "show", "999", expect=1).err


def test_a_failed_entry_is_retried_under_a_new_id(cli: Cli, bus: PersistentBus) -> None:
    handled: list[Any] = []
    bus.subscribe(
        "Flaky",
        lambda event: handled.append(event["n"] if handled else event["missing"]),
        name="flaky",
    )
    failed = bus.post({"n": 1}, event_name="Flaky")
    drain(bus)
    handled.append("mended")
    (done,) = cli("entries", "retry", str(failed), "--json").json
    assert cli("entries", "show", str(done["new_id"]), "--json").json["replay_of"] == failed
    assert [ran.state for ran in drain(bus)] == [State.PROCESSED]


def test_what_cant_be_retried_is_told_and_the_rest_is_done(cli: Cli, bus: PersistentBus) -> None:
    bus.subscribe("Bad", lambda event: event["missing"], name="bad")
    failed = bus.post({}, event_name="Bad")
    drain(bus)
    live = bus.post({}, event_name="Bad")
    done = cli("entries", "retry", str(live), "999", str(failed), expect=1)
    assert f"entry {live} is AVAILABLE" in done.err
    assert "no entry 999" in done.err
    assert f"entry {failed} is tried again as" in done.out
    assert all(line.startswith("stickybus: ") for line in done.err.splitlines())
    assert "--force" in cli("entries", "retry", str(failed), expect=1).err


def test_entries_are_removed_by_id_and_by_key(cli: Cli, bus: PersistentBus) -> None:
    ids = [bus.post({}, event_name="A", search_key1=key) for key in (1, 1, 2, 3)]
    assert cli("entries", "remove", "--key1", "1", "--json").json == {"removed": 2}
    cli("entries", "remove", str(ids[2]))
    assert [entry.record_id for entry in bus.find()] == [ids[3]]
    assert {entry.processing_state for entry in bus.history()} == {State.REMOVED}
    assert "is REMOVED" in cli("entries", "remove", str(ids[0]), expect=1).err
    cli("entries", "remove", expect=2)


# -- all that match ------------------------------------------------------------------------------


@pytest.fixture
def failed(bus: PersistentBus) -> list[int]:
    """Three events that failed; the handlers fail no more."""
    fails = [True]

    def handle(event: dict[str, int]) -> None:
        if fails:
            raise TimeoutError(f"the mail server, order {event['n']}")

    bus.subscribe("Mail", handle, name="mail")
    ids = [bus.post({"n": n}, event_name="Mail", search_key1=n) for n in range(3)]
    drain(bus)
    fails.clear()
    return ids


def test_failed_entries_are_listed_by_their_error(cli: Cli, failed: list[int]) -> None:
    shown = cli("failed", "list", "--error-type", "TimeoutError").out
    assert "TimeoutError: the mail server, order 2" in shown
    by_text = cli("failed", "list", "--error", "ORDER 1", "--event", "Mail", "--json").json
    assert [entry["record_id"] for entry in by_text] == failed[1:2]
    assert cli("failed", "list", "--error-type", "ValueError", "--json").json == []
    assert cli("failed", "list", "--since", "1h", "--before", "1h", "--json").json == []


def test_a_narrow_table_folds_nothing_but_has_fewer_columns_and_cuts_errors(
    cli: Cli, failed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    title, *head, first, _, _ = cli("failed", "list").out.splitlines()
    assert title == "Failed entries of all tables"
    assert head[-1].split()[:3] == ["TABLE", "ID", "QUEUE"]
    assert first.rstrip().endswith("…")
    assert len(first) <= 80

    monkeypatch.setenv("COLUMNS", "30")
    shown = cli("failed", "list").out
    assert shown.count("TABLE ") == len(failed)
    assert "TimeoutError" in shown
    assert cli("failed", "list", "--json").json[0]["record_id"] == failed[-1]


def test_failed_entries_are_shown_and_with_yes_retried(
    cli: Cli, bus: PersistentBus, failed: list[int]
) -> None:
    shown = cli("failed", "retry", "--key1", "1").out
    assert "1 entry would be retried" in shown
    assert "add --yes" in shown
    assert cli("failed", "retry", "--json").json["first"] == failed
    assert bus.find() == []
    assert "1 of 1 entry retried" in cli("failed", "retry", "--key1", "1", "--yes").out
    done = cli("failed", "retry", "--yes", "--json").json
    assert (done["done"], done["matched"], done["changed"], done["errors"]) == (True, 2, 2, [])
    assert sorted(entry.replay_of or 0 for entry in bus.find()) == failed
    assert "No entry matches" in cli("failed", "retry").out


def test_failed_entries_are_discarded(cli: Cli, bus: PersistentBus, failed: list[int]) -> None:
    done = cli("failed", "discard", "--error", "order", "--since", "1h", "--key1", "0", "--yes")
    assert "1 of 1 entry discarded" in done.out
    assert sorted(entry.record_id for entry in bus.dead_letters()) == failed[1:]


def test_ctrl_c_ends_a_change_after_its_batch(
    cli: Cli, bus: PersistentBus, failed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BATCH", 1)
    apply = changes.Retrying.apply

    def interrupted(change: changes.Retrying, connection: Connection, ids: Sequence[int]) -> int:
        signal.raise_signal(signal.SIGINT)
        return apply(change, connection, ids)

    monkeypatch.setattr(changes.Retrying, "apply", interrupted)
    done = cli("failed", "retry", "--yes", expect=130)
    assert "1 of 3 entries retried" in done.out
    assert "run the command again" in done.err
    monkeypatch.undo()
    bus.retry_all()
    assert sorted(entry.replay_of or 0 for entry in bus.find()) == failed


def test_a_retry_waits_for_its_end_and_shows_it(
    cli: Cli, bus: PersistentBus, failed: list[int]
) -> None:
    done = cli("entries", "retry", str(failed[0]), "--wait", "0s", expect=1)
    assert "which is AVAILABLE after 0 s, and goes on" in done.err
    bus.start()
    assert "which is PROCESSED" in cli("entries", "retry", str(failed[1]), "--wait", "20s").out
    bus.subscribe("Bad", lambda event: event["missing"], name="bad")
    bad = bus.post({}, event_name="Bad")
    eventually(lambda: bus.history(record_ids=[bad]), "it has failed")
    done = cli("entries", "retry", str(bad), "--wait", "20s", expect=1)
    assert "which is FAILED (1 failed run)" in done.err
    assert "KeyError: 'missing'" in done.err


def test_queues_are_cleared_and_rescheduled(cli: Cli, bus: PersistentBus) -> None:
    ids = [bus.post({}, event_name="A", search_key1=key, delay=3600) for key in (1, 1, 2)]
    for command in (("queues", "clear"), ("queues", "reschedule", "now")):
        cli(*command, expect=2)
        cli(*command, "--all", "--queue", "bus", expect=2)
    cli("queues", "reschedule", "tomorrow", "--all", expect=2)
    assert "3 entries would be removed" in cli("queues", "clear", "--all").out
    assert cli("queues", "clear", "--queue", "other", "--yes", "--json").json["matched"] == 0
    cli("queues", "reschedule", "now", "--queue", "bus", "--key1", "2", "--yes")
    assert bus.ready_count() == 1
    cli("queues", "reschedule", "2100-01-01T00:00:00Z", "--all", "--yes")
    assert bus.ready_count() == 0
    assert "2 of 2 entries removed" in cli("queues", "clear", "--all", "--key1", "1", "--yes").out
    cli("queues", "clear", "--queue", "bus", "--yes")
    assert bus.find() == []
    assert "3 of 3 entries retried" in cli("failed", "retry", "--removed", "--yes").out
    assert sorted(entry.replay_of or 0 for entry in bus.find()) == ids


def test_live_entries_are_listed_in_pages(cli: Cli, bus: PersistentBus) -> None:
    ids = [bus.post({}, event_name="A") for _ in range(3)]
    page = cli("entries", "list", "--table", "bus_events", "--after", str(ids[0]), "--json").json
    assert [entry["record_id"] for entry in page] == ids[1:]
    cli("entries", "list", "--after", "1", expect=2)


def test_the_work_of_nodes_is_shown(cli: Cli, bus: PersistentBus) -> None:
    assert "No node is live" in cli("workers").out
    bus.subscribe("A", lambda _event: None, name="a")
    bus.start()
    bus.post({}, event_name="A")
    eventually(bus.history, "it has ended")
    [worker] = cli("workers", "--age", "1h", "--json").json
    assert (worker["queues"], worker["running"], worker["processed"]) == (["bus"], 0, 1)
    assert "PROCESSED" in cli("workers").out


@needs.any_database
@pytest.mark.parametrize("command", ["failed list", "entries explain 1", "entries show 1"])
def test_a_terminal_finds_nothing_to_obey_in_an_entry(
    cli: Cli, bus: PersistentBus, command: str
) -> None:
    def fail(_event: dict[str, Any]) -> None:
        raise ValueError("\x1b[31mred\x1b]0;title\x07 \u202eback \x9b2J")

    bus.subscribe("Order", fail)
    bus.post({}, event_name="Order", search_key2="clear\x1b[2J")
    drain(bus)
    out = cli(*command.split()).out
    assert r"\x1b[31mred\x1b]0;title\x07 \u202eback \x9b2J" in out
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & {*out}


@needs.any_database
def test_a_key_that_is_no_text_in_quotes_is_a_usage_error(cli: Cli) -> None:
    assert "no text in JSON's quotes" in cli("entries", "list", "--key1", '"\\x"', expect=2).err


@needs.any_database
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_letters_that_an_output_lacks_are_written_as_escapes(
    database_url: URL, bus: PersistentBus, options: list[str]
) -> None:
    bus.post({}, event_name="Order", user_token="€ 🚌")
    command = [sys.executable, "-m", "stickybus", "entries", "show", "1", *options]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "STICKYBUS_URL": str(database_url)}
    done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    assert ("\\ud83d\\ude8c" if options else "\\U0001f68c") in done.stdout

"""The command line, command by command, on each database."""

from __future__ import annotations

import io
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Connection, Engine, text, update

from bus.persistent import PersistentBus
from notifications.service import NotificationService
from queue_core.model.config import BusConfig
from queue_core.model.posting import Posting
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.model.states import State
from queue_core.reading import bulk, changes
from queue_core.runtime.manual_clock import ManualClock
from sql import schema
from sql.families import VERSION_TABLE
from sql.tables import queue_nodes
from stickybus.cli import main
from stickybus.testing import drain
from tests.contract.harness import engine_of, eventually

DIALECTS = ("sqlite", "postgresql", "mysql", "mariadb")


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """Runs commands on one database, as a shell would."""

    def __init__(
        self, url: URL, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.url = url.render_as_string(hide_password=False)
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("STICKYBUS_URL", self.url)

    def __call__(self, *arguments: str, stdin: bytes = b"", expect: int = 0) -> Done:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(arguments)
        out, err = self._capsys.readouterr()
        assert code == expect, out + err
        return Done(code, out, err)


MakeCli = Callable[[URL], Cli]


@pytest.fixture
def make_cli(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeCli]:
    root = logging.getLogger()
    level = root.level
    yield lambda url: Cli(url, capsys, monkeypatch)
    root.setLevel(level)


@pytest.fixture
def cli(make_cli: MakeCli, database_url: URL) -> Cli:
    return make_cli(database_url)


@pytest.fixture
def bus(database_url: URL) -> Iterator[PersistentBus]:
    bus = PersistentBus(database_url, BusConfig(retry=ImmediateRetries(0)))
    yield bus
    bus.close()


def lines(*objects: Any) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in objects)


# -- post ----------------------------------------------------------------------------------------


def test_post_maps_fields_to_name_keys_and_payload(cli: Cli, bus: PersistentBus) -> None:
    done = cli(
        *("post", "-", "--event-field", "event", "--key1", "repository_id", "--key2", "sender_id"),
        stdin=lines(
            {"event": "push", "repository_id": 7, "sender_id": 8, "payload": {"size": 1}},
            {"event": "gollum", "repository_id": None, "payload": {}},
            {"event": "fork", "sender_id": -(2**63), "note": "no payload field"},
        ),
    )
    assert "3 entries posted to bus" in done.out
    found = [
        (e.class_name, e.search_key1, e.search_key2, json.loads(e.event_json or ""))
        for e in bus.find()
    ]
    assert found == [
        ("push", 7, 8, {"size": 1}),
        ("gollum", None, None, {}),
        (
            "fork",
            None,
            -(2**63),
            {"event": "fork", "sender_id": -(2**63), "note": "no payload field"},
        ),
    ]


def test_post_reads_a_file_and_skips_its_empty_lines(
    cli: Cli, bus: PersistentBus, tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(
        b'\n{"body": {"n": 1}, "payload": 2}\n   \n' + '{"body": {"n": "ü💡"}}'.encode()
    )
    cli("post", str(path), "--event", "Tick", "--payload-field", "body")
    assert [json.loads(entry.event_json or "") for entry in bus.find()] == [{"n": 1}, {"n": "ü💡"}]


def test_a_posted_file_is_run_by_a_bus(cli: Cli, bus: PersistentBus) -> None:
    seen: list[dict[str, Any]] = []
    bus.subscribe("Tick", seen.append, name="tick")
    cli("post", "-", "--event", "Tick", stdin=lines(*({"n": number} for number in range(1_200))))
    assert len(drain(bus)) == 1_200
    assert sorted(event["n"] for event in seen) == list(range(1_200))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{nope}", "not JSON"),
        (b'{"event": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "an array, not an object"),
        (b"{}", "there is no field 'event'"),
        (b'{"event": 1}', "field 'event', is 1, not a string"),
        (b'{"event": ""}', "1 to 255 characters"),
        (b'{"event": "a\\u0000"}', "no NUL character"),
        (lines({"event": "x" * 256}), "not 256"),
        (b'{"event": "a", "key": ""}', "1 to 255 characters"),
        (b'{"event": "a", "key": 7.0}', "field 'key', is 7.0, neither an integer nor a string"),
        (b'{"event": "a", "key": true}', "field 'key', is true, neither an integer nor a string"),
        (b'{"event": "a", "key": 9223372036854775808}', "64-bit integers"),
        (b'{"event": "a", "payload": "text"}', "field 'payload', is 'text', not an object"),
        (b'{"event": "a", "payload": null}', "field 'payload', is null, not an object"),
        (lines({"event": "a", "payload": {"x": "y" * 1_048_576}}), "the cap is 1,048,576"),
    ],
)
@pytest.mark.sqlite
def test_a_bad_line_is_reported_with_its_number_and_reason(
    line: bytes, reason: str, make_cli: MakeCli, tmp_path: Path
) -> None:
    url = URL.create("sqlite", database=str(tmp_path / "bad.db"))
    schema.create(url)
    cli = make_cli(url)
    good = lines({"event": "good"})
    post = ("post", "-", "--event-field", "event", "--key1", "key")
    done = cli(*post, stdin=good + line.strip() + b"\n" + good, expect=1)
    (reported,) = [told for told in done.err.splitlines() if told.startswith("line ")]
    assert reported.startswith("line 2: ")
    assert reason in reported
    assert cli("entries", "list", "--json").json == []


def test_a_file_with_keys_that_is_posted_twice_gives_each_entry_once(
    cli: Cli, bus: PersistentBus
) -> None:
    events = lines(*({"n": number, "id": f"tick-{number}"} for number in range(3)))
    keyed = ("post", "-", "--event", "Tick", "--key", "id", "--keep", "7d", "--json")
    assert cli(*keyed, stdin=events).json["posted"] == 3
    again = cli(*keyed, stdin=events).json
    assert (again["posted"], again["found"], len(bus.find())) == (0, 3, 3)
    status = bus.key_status("tick-1")
    assert (status.keep, status.keep_seconds) == ("period", 7 * 86_400.0)
    replaced = cli(*keyed, "--on-conflict", "replace", stdin=lines({"n": 7, "id": "tick-1"}))
    assert replaced.json["found"] == 1
    assert '"n":7' in (bus.find(record_ids=[status.record_id or 0])[0].event_json or "")
    done = cli(*keyed, stdin=lines({"n": 4}), expect=1)
    assert [told["reason"] for told in done.json["bad_lines"]] == ["there is no field 'id'"]


def test_a_file_is_posted_with_a_priority(cli: Cli, bus: PersistentBus) -> None:
    cli("post", "-", "--event", "Tick", "--priority", "high", stdin=lines({"n": 1}))
    [entry] = bus.find()
    assert entry.effective_date < entry.created_date


def test_a_bad_line_leaves_its_batch_unwritten_and_a_second_run_goes_on_from_there(
    cli: Cli, bus: PersistentBus
) -> None:
    events: list[dict[str, Any]] = [{"n": number, "key": number} for number in range(1_100)]
    bad = [*events]
    bad[700] = {"n": 700, "key": [700]}
    bad[900] = {"n": 900, "key": 2**63}
    done = cli(
        "post", "-", "--event", "Tick", "--key1", "key", "--json", stdin=lines(*bad), expect=1
    )
    assert done.json["posted"] == len(bus.find()) == 500
    assert [told["line"] for told in done.json["bad_lines"]] == [701]
    bad[700] = events[700]
    from_line = str(done.json["continue_from_line"])
    again = ("post", "-", "--event", "Tick", "--key1", "key", "--from-line", from_line)
    assert "line 901: " in cli(*again, stdin=lines(*bad), expect=1).err
    cli(*again, stdin=lines(*events))
    assert sorted(int(entry.search_key1 or 0) for entry in bus.find()) == list(range(1_100))


def test_keys_that_are_texts_are_posted_and_found(cli: Cli, bus: PersistentBus) -> None:
    events = [{"key": "ada@example.org"}, {"key": "41"}, {"key": 41}]
    cli("post", "-", "--event", "Tick", "--key2", "key", stdin=lines(*events))

    for given, stored in (("ada@example.org", "ada@example.org"), ('"41"', "41"), ("41", 41)):
        found = cli("entries", "list", "--key2", given, "--json").json
        assert [entry["search_key2"] for entry in found] == [stored]
    cli("history", "forget", "--key2", "ada@example.org", "--yes")
    assert sorted(str(entry.search_key2) for entry in bus.find()) == ["41", "41"]


def test_a_file_that_is_not_there_is_a_usage_error(cli: Cli) -> None:
    assert cli("post", "nowhere.jsonl", "--event", "a", expect=2).err.startswith(
        "stickybus: nowhere.jsonl can't be"
    )


def test_post_wants_either_an_event_name_or_its_field(cli: Cli) -> None:
    for options in ([], ["--event", "a", "--event-field", "b"]):
        assert "either --event-field or --event" in cli("post", "-", *options, expect=2).err


# -- schedule ------------------------------------------------------------------------------------


def test_schedule_takes_each_lines_date(cli: Cli) -> None:
    cli(
        *(
            "schedule",
            "-",
            "--queue",
            "invoices:dunning",
            "--event",
            "Remind",
            "--at-field",
            "due",
            "--key1",
            "id",
        ),
        stdin=lines(
            {"id": 1, "due": "2031-01-31T10:00:00+01:00"},
            {"id": 2, "due": "2031-01-31T10:00:00.5Z"},
        ),
    )
    found = cli(
        "entries", "list", "--table", "notifications", "--queue", "invoices:dunning", "--json"
    ).json
    assert [(entry["search_key1"], entry["effective_date"]) for entry in found] == [
        (1, "2031-01-31T09:00:00+00:00"),
        (2, "2031-01-31T10:00:00.500000+00:00"),
    ]


def test_schedule_delays_all_lines(cli: Cli) -> None:
    before = datetime.now(UTC)
    cli(
        "schedule",
        "-",
        "--queue",
        "a:b",
        "--event",
        "Remind",
        "--delay",
        "30d",
        stdin=lines({}, {}),
    )
    for entry in cli("entries", "list", "--table", "notifications", "--json").json:
        delay = datetime.fromisoformat(entry["effective_date"]) - before
        assert timedelta(days=30, seconds=-5) < delay < timedelta(days=30, minutes=2)


def test_a_date_without_a_time_zone_is_a_bad_line(cli: Cli) -> None:
    schedule = ("schedule", "-", "--queue", "a:b", "--event", "Remind", "--at-field", "due")
    for due, reason in (
        ("2031-01-31T10:00:00", "no time zone"),
        ("soon", "no date"),
        (7, "no date"),
    ):
        assert reason in cli(*schedule, stdin=lines({"due": due}), expect=1).err
    assert cli("entries", "list", "--table", "notifications", "--json").json == []


@pytest.mark.parametrize(
    "options",
    [
        ["--queue", "a:b"],
        ["--queue", "a:b", "--delay", "5m", "--at-field", "due"],
        ["--queue", "nocolon", "--delay", "5m"],
        ["--queue", "a:b:c", "--delay", "5m"],
        ["--queue", "a:b", "--delay", "5 parsecs"],
        ["--delay", "5m"],
    ],
)
@pytest.mark.sqlite
def test_schedule_refuses_options_that_make_no_sense(
    options: list[str], make_cli: MakeCli, tmp_path: Path
) -> None:
    cli = make_cli(URL.create("sqlite", database=str(tmp_path / "none.db")))
    cli("schedule", "-", "--event", "a", *options, expect=2)
    assert not (tmp_path / "none.db").exists()


# -- status and nodes ----------------------------------------------------------------------------


def test_status_counts_entries_by_where_they_stand(
    cli: Cli, bus: PersistentBus, engine: Engine
) -> None:
    bus.subscribe("Good", lambda event: event, name="good")
    bus.subscribe("Bad", lambda event: event["missing"], name="bad")
    bus.post_many(
        [Posting(event={}, event_name=name) for name in ("Good", "Good", "Bad", "New", "New")]
    )
    drain(bus)
    bus.post_many([Posting(event={}, event_name="Good"), Posting(event={}, event_name="Good")])
    bus.post_many([Posting(event={}, event_name="Good", at=datetime.now(UTC) + timedelta(days=1))])
    with engine.begin() as connection:
        connection.execute(text("UPDATE bus_events SET lane = '!suspect' WHERE record_id = 7"))
    found = cli("status", "--json").json
    (queue,) = found["queues"]
    standing = {
        name: queue[name] for name in ("ready", "scheduled", "running", "parked", "suspect")
    }
    assert standing == {"ready": 1, "scheduled": 1, "running": 0, "parked": 2, "suspect": 1}
    assert 0 <= queue["oldest_ready_seconds"] < 60
    assert queue["posted_per_second"] == pytest.approx(8 / 60)
    assert queue["processed_per_second"] == pytest.approx(2 / 60)
    assert queue["failed_per_second"] == pytest.approx(1 / 60)
    assert [node["state"] for node in found["nodes"]] == ["STOPPED"]
    table = cli("status").out
    for heading in ("READY", "SCHEDULED", "PARKED", "OLDEST READY", "PROCESSED/S", "LEASE"):
        assert heading in table


def test_status_shows_running_entries_and_a_live_lease(cli: Cli, bus: PersistentBus) -> None:
    found: list[Any] = []
    bus.subscribe(
        "Look", lambda event: found.append((event, cli("status", "--json").json)), name="look"
    )
    bus.post({}, event_name="Look")
    drain(bus)
    ((_, seen),) = found
    assert [queue["running"] for queue in seen["queues"]] == [1]
    (node,) = seen["nodes"]
    assert node["state"] == "LIVE"
    assert 0 < node["lease_left_seconds"] <= node["lease_seconds"] == 15
    assert node["serves"][0]["queues"] == ["bus"]


def test_status_tells_in_a_line_that_nodes_have_different_subscribers(
    cli: Cli, bus: PersistentBus, database_url: URL
) -> None:
    other = PersistentBus(database_url, BusConfig(node_name="billing"))
    for name in ("Order", "A", "B", "C"):
        bus.subscribe(name, print, name="mail")
        other.subscribe(name, print, name="book")
    with bus:
        assert "Subscribers differ" not in cli("status").out
        assert cli("status", "--json").json["differing_subscribers"] == []
        with other:
            [*_, order] = cli("status", "--json").json["differing_subscribers"]
            assert order == {
                "table": "bus_events",
                "queue_name": "bus",
                "class_name": "Order",
                "nodes_by_subscribers": {
                    "mail": [engine_of(bus).lifecycle.name],
                    "book": ["billing"],
                },
            }
            assert (
                "Subscribers differ between nodes, of A, B, C and 1 more: each" in cli("status").out
            )
            assert "Subscribers differ" not in cli("status", "--table", "notifications").out


def test_status_counts_dead_letters_and_tells_the_newest(cli: Cli, bus: PersistentBus) -> None:
    bus.subscribe("Bad", lambda event: event["missing"], name="bad")
    for _ in range(2):
        bus.post({}, event_name="Bad")
    drain(bus)
    (queue,) = cli("status", "--json").json["queues"]
    (newest, _) = cli("history", "list", "--json").json
    assert (queue["dead_letters"], queue["failed_per_second"]) == (2, pytest.approx(2 / 60))
    assert datetime.fromisoformat(queue["newest_dead_letter"]) == datetime.fromisoformat(
        newest["finished_date"]
    )
    assert "2 dead letters. See: stickybus history list --dead-letters" in cli("status").out
    cli("entries", "retry", str(newest["record_id"]))
    (left,) = cli("history", "list", "--dead-letters", "--json").json
    assert left["record_id"] < newest["record_id"]
    assert len(cli("history", "list", "--state", "FAILED", "--json").json) == 2


def test_recurring_and_status_show_schedules_with_their_next_date(
    cli: Cli, database_url: URL
) -> None:
    assert "There are no recurring schedules" in cli("recurring").out
    with closing(NotificationService(database_url)) as service:
        queue = service.create_queue("shop", "summaries", print)
        queue.recur("daily", {}, cron="0 9 * * *", timezone="Europe/Berlin")
        queue.recur("often", {}, every=30)
    (daily, often) = cli("recurring", "--json").json
    assert (daily["queue_name"], daily["rule"]["expression"]) == ("shop:summaries", "0 9 * * *")
    assert datetime.fromisoformat(often["next_due"]) > datetime.now(UTC) - timedelta(minutes=1)
    assert cli("status", "--json").json["schedules"] == [daily, often]
    for shown in (cli("recurring").out, cli("status").out):
        assert "0 9 * * * (Europe/Berlin)" in shown
        assert "every 30 s" in shown
    assert cli("recurring", "--table", "bus_events", "--json").json == []


def test_lists_read_all_tables_or_the_one_that_is_named(
    cli: Cli, bus: PersistentBus, database_url: URL
) -> None:
    with closing(NotificationService(database_url)) as service:
        queue = service.create_queue("shop", "reminders", print)
        queue.schedule({}, delay=3_600, search_key2=9)
        queue.remove(queue.schedule({}, delay=3_600))
    bus.post({}, event_name="New", search_key2=9)
    found = cli("entries", "list", "--key2", "9", "--json").json
    assert [(entry["table"], entry["class_name"]) for entry in found] == [
        ("bus_events", "New"),
        ("notifications", "reminders"),
    ]
    assert len(cli("entries", "list", "--table", "bus_events", "--json").json) == 1
    assert [entry["table"] for entry in cli("history", "list", "--json").json] == ["notifications"]
    assert cli("history", "list", "--table", "bus_events", "--json").json == []
    assert "notifications" in cli("history", "list").out


def test_nodes_shows_who_serves_what(cli: Cli, bus: PersistentBus) -> None:
    assert "No node has ever run here" in cli("nodes").out
    with bus:
        assert [node["state"] for node in cli("nodes", "--json").json] == ["LIVE"]
        assert "15 s" in cli("nodes").out


@pytest.mark.parametrize(
    "serves", ["{", "null", "[1]", '[{"queues":7}]', '[{"queues":[7]}]', "[" * 5_000]
)
def test_nodes_shows_a_node_whatever_it_says_that_it_serves(
    cli: Cli, bus: PersistentBus, serves: str
) -> None:
    with bus:
        name = engine_of(bus).lifecycle.name
        change = update(queue_nodes).values(serves=serves)
        engine_of(bus).database.write(lambda connection: connection.execute(change))
        assert [(node["name"], node["serves"]) for node in cli("nodes", "--json").json] == [
            (name, [])
        ]
        assert name[:8] in cli("nodes").out


def test_status_of_an_unknown_table_tells_what_is_missing(cli: Cli) -> None:
    assert "lacks the table 'orders'" in cli("status", "--table", "orders", expect=3).err


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


# -- history -------------------------------------------------------------------------------------


def test_history_is_listed_by_state_and_time(cli: Cli, bus: PersistentBus) -> None:
    bus.subscribe("Good", lambda event: event, name="good")
    bus.subscribe("Bad", lambda event: event["missing"], name="bad")
    bus.post_many([Posting(event={}, event_name="Good"), Posting(event={}, event_name="Bad")])
    drain(bus)
    failed = cli("history", "list", "--state", "FAILED", "--since", "1h", "--json").json
    assert [entry["class_name"] for entry in failed] == ["Bad"]
    assert cli("history", "list", "--before", "1h", "--json").json == []
    assert "KeyError" in cli("history", "list").out
    assert "no time zone" in cli("history", "list", "--since", "2026-01-01", expect=2).err


def test_history_is_truncated_by_age_and_state_and_live_entries_stay(
    cli: Cli, database_url: URL
) -> None:
    clock = ManualClock(datetime.now(UTC) - timedelta(days=40))
    bus = PersistentBus(database_url, BusConfig(retry=ImmediateRetries(0)), clock=clock)
    bus.subscribe("Good", lambda event: event, name="good")
    bus.subscribe("Bad", lambda event: event["missing"], name="bad")
    for _ in range(2):
        bus.post_many([Posting(event={}, event_name=name) for name in ("Good", "Bad")])
        drain(bus)
        clock.advance(seconds=39 * 86_400)
    bus.post({}, event_name="Good")
    truncate = ("history", "truncate", "--json")
    assert cli(*truncate, "--before", "30d", "--state", "PROCESSED").json["removed"] == 1
    assert (
        "1 row removed from bus_events_history" in cli("history", "truncate", "--before", "30d").out
    )
    assert cli(*truncate).json["removed"] == 2
    assert len(bus.find()) == 1
    bus.close()


def test_only_states_of_history_can_be_truncated(cli: Cli) -> None:
    assert "AVAILABLE" in cli("history", "truncate", "--state", "AVAILABLE", expect=1).err
    cli("history", "truncate", "--state", "NONSENSE", expect=2)


# -- schema --------------------------------------------------------------------------------------


def test_the_schema_is_created_checked_and_found_current(
    make_cli: MakeCli, empty_database_url: URL
) -> None:
    cli = make_cli(empty_database_url)
    assert (
        "stickybus schema create"
        in cli("schema", "check", expect=3).err + cli("schema", "check", expect=3).out
    )
    assert "created" in cli("schema", "create").out
    assert "current" in cli("schema", "check").out
    assert "nothing to do" in cli("schema", "create").out
    assert "nothing to do" in cli("schema", "upgrade").out
    assert cli("schema", "check", "--table", "orders", "--json", expect=3).json[
        "missing_tables"
    ] == [
        "orders",
        "orders_history",
    ]
    cli("schema", "create", "--table", "orders")
    cli("schema", "check", "--table", "orders")


def test_a_missing_schema_is_told_by_every_command(
    make_cli: MakeCli, empty_database_url: URL
) -> None:
    cli = make_cli(empty_database_url)
    for command in (
        *(
            ("status",),
            ("nodes",),
            ("recurring",),
            ("entries", "list"),
            ("entries", "retry", "1"),
            ("history", "list"),
        ),
        *(("history", "truncate"), ("schema", "upgrade")),
    ):
        assert "stickybus schema create" in cli(*command, expect=3).err
    if empty_database_url.get_backend_name() == "sqlite":
        assert not Path(str(empty_database_url.database)).exists()


def test_a_newer_schema_that_works_with_this_version_is_worked_with_and_left_alone(
    cli: Cli, engine: Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    for command in ("create", "upgrade"):
        assert "nothing to do, the schema is newer (9999) and works" in cli("schema", command).out
    assert cli("schema", "check", "--json").json["fit"] == "newer, and compatible"
    cli("post", "-", "--event", "a", stdin=b"{}")


def test_a_newer_schema_that_does_not_work_with_this_version_is_left_alone(
    cli: Cli, engine: Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(f"UPDATE {VERSION_TABLE} SET version_num = '9999', works_since = '9999'")
        )
    for command in (("create",), ("upgrade",), ("check",)):
        done = cli("schema", *command, expect=3)
        assert "newer" in done.err + done.out
    assert "does not know" in cli("post", "-", "--event", "a", stdin=b"{}", expect=3).err


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.sqlite
def test_the_schema_is_shown_as_sql_for_each_dialect(
    dialect: str, make_cli: MakeCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = make_cli(URL.create("sqlite", database="none.db"))
    monkeypatch.delenv("STICKYBUS_URL")
    done = cli("schema", "show", "--dialect", dialect, "--table", "orders")
    assert "CREATE TABLE orders_history" in done.out
    assert ("InnoDB" in done.out) == (dialect in {"mysql", "mariadb"})
    assert cli("schema", "show", "--dialect", dialect, "--json").json["dialect"] == dialect
    assert "give --dialect" in cli("schema", "show", expect=2).err
    assert "no dialect" in cli("schema", "show", "--dialect", "oracle", expect=2).err


def test_a_customer_is_forgotten_in_all_tables_after_a_dry_run(
    cli: Cli, bus: PersistentBus, database_url: URL
) -> None:
    with closing(NotificationService(database_url)) as service:
        queue = service.create_queue("shop", "reminders", print)
        queue.schedule({}, delay=3_600, search_key2=9)
        queue.remove(queue.schedule({}, delay=3_600, search_key2=9))
    bus.post({}, event_name="New", search_key2=9)
    bus.post({}, event_name="New", search_key2=8)
    assert "Nothing was deleted" in cli("history", "forget", "--key2", "9").out
    for options, deleted in ((), False), (("--yes",), True):
        found = cli("history", "forget", "--key2", "9", *options, "--json").json
        assert found["deleted"] is deleted
        counts = [(one["table"], one["live"], one["ended"]) for one in found["tables"]]
        assert counts == [("bus_events", 1, 0), ("notifications", 1, 1)]
    assert [entry["search_key2"] for entry in cli("entries", "list", "--json").json] == [8]
    assert cli("history", "list", "--json").json == []
    assert "give --key1" in cli("history", "forget", expect=2).err


def test_a_customer_of_whom_an_entry_runs_is_not_forgotten_yet(
    cli: Cli, bus: PersistentBus
) -> None:
    found: list[Any] = []
    forget = ("history", "forget", "--key2", "9", "--yes")
    bus.subscribe(
        "Look", lambda event: found.append((event, cli(*forget, expect=1).err)), name="look"
    )
    bus.post({}, event_name="Look", search_key2=9)
    drain(bus)
    ((_, told),) = found
    assert "Entries that run were not touched" in told
    assert cli(*forget, "--json").json["tables"][0]["ended"] == 1


# -- everywhere ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        *(
            ("demo",),
            ("post",),
            ("schedule",),
            ("worker",),
            ("status",),
            ("nodes",),
            ("recurring",),
        ),
        *(("schema", name) for name in ("create", "upgrade", "check", "show")),
        *(("entries", name) for name in ("list", "show", "retry", "remove")),
        *(("failed", name) for name in ("list", "retry", "discard")),
        *(("queues", name) for name in ("clear", "reschedule")),
        ("workers",),
        *(("history", name) for name in ("list", "truncate", "forget")),
        *(("tasks", name) for name in ("claim", "tryclaimid", "ins", "mod", "rm")),
        *(("tasks", name) for name in ("clear", "ts", "stats", "time", "docs", "ns")),
        *(("tasks", name) for name in ("doc-put", "doc-rm")),
    ],
    ids=" ".join,
)
@pytest.mark.sqlite
def test_every_command_has_examples_and_json(
    command: tuple[str, ...], make_cli: MakeCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = make_cli(URL.create("sqlite", database="none.db"))(*command, "--help").out
    assert "Example" in shown
    assert f"stickybus {' '.join(command)}" in shown
    assert "--json" in shown


@pytest.mark.parametrize(
    ("url", "code", "told"),
    [
        (None, 2, "no database: give --url, or set STICKYBUS_URL"),
        ("nonsense", 2, "no SQLAlchemy URL"),
        ("oracle://host/name", 2, "oracle is not supported"),
        ("postgresql://user:swordfish@127.0.0.1:1/name", 3, "can't be reached"),
        ("mariadb://user:swordfish@127.0.0.1:1/name", 3, "can't be reached"),
        ("mysql://user:swordfish@127.0.0.1:1/name", 3, "can't be reached"),
    ],
)
@pytest.mark.sqlite
def test_a_database_that_isnt_there_is_one_line_without_the_password(
    url: str | None, code: int, told: str, make_cli: MakeCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = make_cli(URL.create("sqlite", database="none.db"))
    monkeypatch.delenv("STICKYBUS_URL")
    for command in (("status",), ("post", "-", "--event", "a")):
        done = cli(*command, *(("--url", url) if url else ()), stdin=b"{}", expect=code)
        assert told in done.err
        assert len(done.err.splitlines()) == 1
        assert "swordfish" not in done.err


@pytest.mark.sqlite
def test_a_mistyped_command_is_a_usage_error(make_cli: MakeCli) -> None:
    assert (
        "No such command 'pst'"
        in make_cli(URL.create("sqlite", database="none.db"))("pst", expect=2).err
    )


def test_a_queue_is_paused_listed_and_resumed(cli: Cli, bus: PersistentBus) -> None:
    told = cli(
        "pause", "bus", "--reason", "the mail server is down", "--until", "2h", "--by", "ann"
    )
    cli("pause", "bus", "--handler", "mails", "--json")

    assert told.out.startswith("bus is paused until ")
    [whole, of_handler] = cli("pauses", "--json").json
    assert (whole["queue_name"], whole["handler"], whole["paused_by"]) == ("bus", None, "ann")
    assert whole["reason"] == "the mail server is down"
    assert (of_handler["handler"], of_handler["until"]) == ("mails", None)
    assert [pause.handler for pause in bus.pauses()] == [None, "mails"]
    shown = cli("status").out
    assert "Pauses" in shown
    assert "the mail server is down" in shown
    assert cli("status", "--json").json["pauses"] == [whole, of_handler]

    assert cli("resume", "bus").out == "bus is resumed\n"
    assert cli("resume", "bus").out == "bus was not paused\n"
    assert cli("resume", "bus", "--handler", "mails", "--json").json == {"resumed": True}
    assert cli("pauses").out == "Nothing is paused.\n"


def test_a_queue_is_limited_listed_and_unlimited(cli: Cli, bus: PersistentBus) -> None:
    told = cli("limit", "bus", "--concurrency", "10", "--rate", "100", "--per", "1m", "--by", "ann")

    assert told.out == "bus is limited to 10 at once, 100 in 60 s\n"
    [limit] = cli("limits", "--json").json
    assert (limit["concurrency"], limit["rate"], limit["limited_by"]) == (10, 100, "ann")
    assert "100 in 0:01:00" in cli("limits").out
    assert [one.concurrency for one in bus.limits()] == [10]

    assert cli("unlimit", "bus").out == "bus is limited no more\n"
    assert cli("unlimit", "bus", "--json").json == {"unlimited": False}
    assert cli("limits").out == "Nothing is limited.\n"
    assert "needs concurrency" in cli("limit", "bus", expect=1).err


def test_the_keys_of_a_queue_are_limited(cli: Cli, bus: PersistentBus) -> None:
    told = cli("limit", "bus", "--per-key", "3", "--rate-per-key", "10", "--burst-per-key", "2")

    assert told.out == "bus is limited to 3 at once of each key, 10 in 1 s of each key\n"
    [limit] = bus.limits()
    assert (limit.per_key, limit.rate_per_key, limit.burst_per_key) == (3, 10, 2)
    assert "10 in 0:00:01" in cli("limits").out


@pytest.mark.parametrize("until", ["soon", "2026-01-31T09:00:00"])
def test_a_pause_until_no_date_is_a_usage_error(cli: Cli, until: str) -> None:
    assert "--until" not in cli("pause", "bus", "--until", until, expect=2).out
    assert cli("pauses", "--json").json == []


def test_it_is_explained_why_an_entry_is_not_running(cli: Cli, bus: PersistentBus) -> None:
    record_id = bus.post({}, event_name="Invoice.paid", delay=60)
    bus.pause(by="ann")

    told = cli("entries", "explain", str(record_id)).out
    facts = cli("entries", "explain", str(record_id), "--json").json

    assert told.startswith(f"Entry {record_id} of bus_events (Invoice.paid, bus) is AVAILABLE.\n")
    assert "paused by ann" in told
    assert [reason["code"] for reason in facts["reasons"]] == [
        "paused",
        "queue-not-served",
        "not-due",
    ]
    cli("entries", "explain", "4711", expect=1)

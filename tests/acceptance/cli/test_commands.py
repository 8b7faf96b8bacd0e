"""The command line: what holds for every command, pauses and limits."""

from __future__ import annotations

import platform
import sqlite3
from contextlib import closing
from importlib.metadata import Distribution, PackageNotFoundError, version

import pytest
from sqlalchemy import URL

from bus.persistent import PersistentBus
from notifications.service import NotificationService
from queue_core.model.config import BusConfig
from tests.acceptance.cli.running import Cli, MakeCli


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


@pytest.mark.sqlite
def test_help_is_as_wide_as_the_terminal_and_names_all_parts(
    make_cli: MakeCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = make_cli(URL.create("sqlite", database="none.db"))
    monkeypatch.setenv("COLUMNS", "80")
    whole = cli("--help").out
    for panel in ("Entries and queues", "Work queue", "History", "Operation"):
        assert panel in whole
    assert "a work queue" in whole
    assert " Commands " not in whole
    lines = [line.strip() for line in cli("status", "--help").out.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("READY entries"))
    assert min(map(len, lines[first : first + 5])) > 65
    assert "stickybus status" in lines


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


@pytest.mark.sqlite
def test_versions_are_shown_one_in_a_line(make_cli: MakeCli) -> None:
    shown = make_cli(URL.create("sqlite", database="none.db"))("--version").out

    assert shown.splitlines() == [
        f"stickybus {version('stickybus')}",
        f"Python {platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version}",
        f"SQLAlchemy {version('SQLAlchemy')}",
        f"psycopg {version('psycopg')}",
        f"PyMySQL {version('PyMySQL')}",
    ]


@pytest.mark.sqlite
def test_a_driver_that_is_not_installed_has_no_version(
    make_cli: MakeCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stickybus.cli.versions.DRIVERS", ("psycopg", "no-such-driver"))

    shown = make_cli(URL.create("sqlite", database="none.db"))("--version").out

    assert shown.splitlines()[-1] == f"psycopg {version('psycopg')}"


@pytest.mark.sqlite
def test_a_source_tree_that_is_not_installed_says_so_instead_of_a_version(
    make_cli: MakeCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = Distribution.from_name

    def without_stickybus(name: str) -> Distribution:
        if name == "stickybus":
            raise PackageNotFoundError(name)
        return find(name)

    monkeypatch.setattr(Distribution, "from_name", without_stickybus)

    shown = make_cli(URL.create("sqlite", database="none.db"))("--version").out

    first, second, *_others = shown.splitlines()
    assert first == "stickybus of a source tree that is not installed"
    assert second == f"Python {platform.python_version()}"


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


def test_a_pause_of_a_queue_that_is_not_known_is_told(
    cli: Cli, bus: PersistentBus, database_url: URL
) -> None:
    told = cli("pause", "buss", "--json")
    assert told.json["queue_name"] == "buss"
    assert "no node has served it" in told.err
    assert "stickybus resume buss --table bus_events" in told.err
    assert cli("pause", "bus").err == ""
    with closing(PersistentBus(database_url, BusConfig(name="orders"))) as orders:
        orders.subscribe("a", print)
        assert "no node has served it" in cli("pause", "orders").err
        orders.post({}, event_name="a")
        assert cli("pause", "orders").err == ""
        orders.clear()
        with orders:
            assert cli("pause", "orders").err == ""
    assert cli("pause", "orders").err == ""


def test_a_pause_of_a_handler_that_no_node_has_is_told(cli: Cli, bus: PersistentBus) -> None:
    bus.subscribe("a", print, name="mails")
    assert cli("pause", "bus", "--handler", "mailz").err == ""
    with bus:
        assert cli("pause", "bus", "--handler", "mails").err == ""
    told = cli("pause", "bus", "--handler", "mailz").err
    assert told.startswith("No node has a subscriber mailz of bus, but mails: is the name right?")
    assert "stickybus resume bus --table bus_events --handler mailz" in told


def test_a_queue_of_another_table_is_refused_with_its_table(
    cli: Cli, bus: PersistentBus, database_url: URL
) -> None:
    with closing(NotificationService(database_url)) as service:
        service.create_queue("shop", "mails", print).schedule({}, delay=3_600)
    named = "shop:mails is no queue of bus_events, but one of notifications: add --table"
    for command in (("pause",), ("resume",), ("limit", "--concurrency", "1"), ("unlimit",)):
        assert named in cli(*command, "shop:mails", expect=2).err
    assert cli("pauses", "--json").json == cli("limits", "--json").json == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("limit", "bus", "--concurrency", "0"),
        ("limit", "bus", "--rate", "1", "--per", "1x"),
        ("limit", "bus", "--rate", "1", "--per", "0s"),
        ("pause", "bus", "--handler", ""),
        ("tasks", "limit", "-q", "mail", "--concurrency", "0"),
    ],
    ids=" ".join,
)
def test_an_option_that_is_not_allowed_is_a_usage_error(
    cli: Cli, bus: PersistentBus, arguments: tuple[str, ...]
) -> None:
    cli(*arguments, expect=2)


def test_what_is_not_there_is_told_with_the_next_step(cli: Cli, bus: PersistentBus) -> None:
    group = cli("groups", "show", "4", expect=1).err
    assert group.startswith("stickybus: there is no group 4 in bus_events")
    assert "written" not in group

    live = bus.post({}, event_name="a")
    ended = cli("entries", "discard", str(live), expect=1).err
    assert f"stickybus entries show {live} --table bus_events" in ended
    cli("entries", "show", str(live))


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
    doubted = cli("limit", "shop:mails", "--concurrency", "1")
    assert (
        "No entry is in the queue shop:mails of bus_events, and no node has served it: is the name "
        "right? To take the limit back: stickybus unlimit shop:mails --table bus_events"
    ) in doubted.err
    assert "shop:mails is limited" in doubted.out
    cli("unlimit", "shop:mails")
    refused = cli("limit", "bus", expect=2).err
    assert "--rate-per-key" in refused
    assert "stickybus unlimit bus" in refused


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

"""The command line: history and schema."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, text

from bus.persistent import PersistentBus
from notifications.service import NotificationService
from queue_core.model.config import BusConfig
from queue_core.model.posting import Posting
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.runtime.manual_clock import ManualClock
from sql.families import VERSION_TABLE
from stickybus.testing import drain
from tests.acceptance.cli.running import DIALECTS, Cli, MakeCli

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
    assert "AVAILABLE" in cli("history", "truncate", "--state", "available", expect=2).err
    refused = cli("history", "truncate", "--state", "NONSENSE", expect=2).err
    assert "Invalid value for '--state': 'NONSENSE' is not one of" in refused


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

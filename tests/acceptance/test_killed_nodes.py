"""Nodes that are real processes: killed, frozen and woken, restarted under their name."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pytest
from sqlalchemy import URL, ColumnElement, Table, func, select, text
from sqlalchemy.exc import DBAPIError

from queue_core.model.lanes import keyed_lane
from sql.statements import nodes
from stickybus import Entry, PersistentBus, State
from tests.acceptance.node_process import (
    KEYS,
    LEASE_SECONDS,
    SETTINGS,
    bus_on,
    key_of,
    node_process,
)
from tests.contract.harness import engine_of, eventually

SLACK_SECONDS = 15.0
"""For a machine that does much else: a process alone takes it seconds to start."""


@pytest.fixture
def observer(database_url: URL) -> Iterator[PersistentBus]:
    """A bus that is no node."""
    bus = bus_on(database_url, "observer")
    yield bus
    bus.close()


def by_number(entries: list[Entry]) -> dict[str, list[str]]:
    """The states that each order has gone through, by its payload."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        found.setdefault(entry.event_json or "", []).append(entry.processing_state.value)
    return found


def state_of(observer: PersistentBus, name: str) -> str:
    row = engine_of(observer).database.fetch(
        lambda connection: nodes.Nodes().node(connection, name)
    )
    assert row is not None
    return str(row.state)


def holds_no_lock(observer: PersistentBus, name: str) -> bool:
    """Return whether a process that stands still is outside of its transactions.

    Others would wait for one inside.
    """
    database = engine_of(observer).database
    if database.dialect.name == "sqlite":
        with closing(sqlite3.connect(database.url.database or "", timeout=0.5)) as file:
            try:
                file.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            file.rollback()
            return True
    locked = text("SELECT name FROM queue_nodes WHERE name = :name FOR UPDATE NOWAIT")
    try:
        with database.engine.begin() as connection:
            return bool(connection.scalar(locked, {"name": name}))
    except DBAPIError:
        return False


def all_ended(observer: PersistentBus, count: int) -> dict[str, list[str]]:
    def terminal() -> list[Entry]:
        return [entry for entry in observer.history() if entry.processing_state is not State.REAPED]

    eventually(
        lambda: len(terminal()) >= count and not observer.find(),
        f"{count} orders have ended",
        seconds=60,
    )
    assert len(terminal()) == count
    return by_number(observer.history())


def order(number: int) -> str:
    return f'{{"number":{number}}}'


def test_the_entries_of_a_killed_node_run_elsewhere_within_its_lease_and_a_reaper_period(
    database_url: URL, observer: PersistentBus
) -> None:
    with node_process(database_url, "killed") as killed, node_process(database_url, "heir") as heir:
        killed.tell("post -1 -2 5 6")
        killed.wait("run -1", "run -2", "done 5", "done 6")
        eventually(lambda: len(observer.history()) == 2, "the two short ones have ended")
        killed.kill()
        died = time.monotonic()

        heir.tell("go")
        heir.wait("done -1", "done -2")

        assert time.monotonic() - died < LEASE_SECONDS + 0.5 + SLACK_SECONDS
        assert all_ended(observer, 4) == {
            order(-1): ["REAPED", "PROCESSED"],
            order(-2): ["REAPED", "PROCESSED"],
            order(5): ["PROCESSED"],
            order(6): ["PROCESSED"],
        }
        # On a slow machine it may have lost its lease before it died, and have registered anew.
        eventually(lambda: state_of(observer, "killed") == nodes.DEAD, "it is dead")


def test_of_the_backlog_of_a_killed_node_only_what_its_threads_had_is_suspect(
    database_url: URL, observer: PersistentBus
) -> None:
    """Suspects run one at a time: a backlog of them would take hours."""
    count, threads = 3_000, SETTINGS["handler_threads"]
    long = [-number for number in range(1, threads + 1)]
    main, past = (
        engine_of(observer).store.statements.main,
        engine_of(observer).store.statements.past,
    )

    def number_of(table: Table, *conditions: ColumnElement[bool]) -> int:
        statement = select(func.count()).select_from(table).where(*conditions)
        return engine_of(observer).database.fetch(
            lambda connection: connection.execute(statement).scalar_one()
        )

    with node_process(database_url, "killed") as killed, node_process(database_url, "heir") as heir:
        heir.tell("go")
        killed.tell("post " + " ".join(map(str, long)))
        killed.wait(*(f"run {number}" for number in long))
        killed.tell(f"fill {count}")
        killed.wait(f"filled {count}")
        killed.kill()

        eventually(lambda: number_of(main) == 0, "all has ended", seconds=60)

        assert number_of(past, past.c.processing_state == State.PROCESSED.value) == count + threads
        assert (
            0
            < number_of(
                past, past.c.processing_state == State.PROCESSED.value, past.c.crash_count > 0
            )
            <= threads
        )
        assert Counter(heir.lines)["done 0"] == 1


def test_a_node_frozen_past_its_lease_starts_nothing_it_lost_and_records_nothing_twice(
    database_url: URL, observer: PersistentBus
) -> None:
    # Four threads hold four; the others wait in the process.
    numbers = [-1, -2, -3, -4, *range(1, 9)]
    with node_process(database_url, "frozen") as frozen, node_process(database_url, "heir") as heir:
        frozen.tell("post " + " ".join(map(str, numbers)))
        frozen.wait("run -1", "run -2", "run -3", "run -4")
        frozen.freeze(lambda: holds_no_lock(observer, "frozen"))
        heir.tell("go")
        heir.wait(*(f"done {number}" for number in numbers))
        ended = all_ended(observer, len(numbers))

        frozen.thaw()
        eventually(lambda: state_of(observer, "frozen") == nodes.LIVE, "it has registered anew")
        frozen.tell("go")
        frozen.wait("done -1", "done -2", "done -3", "done -4")
        frozen.tell("post 100")
        frozen.wait("done 100")

        assert set(frozen.lines).isdisjoint({f"run {number}" for number in range(1, 9)})
        assert all(states == ["REAPED", "PROCESSED"] for states in ended.values())
        assert all_ended(observer, len(numbers) + 1) == ended | {order(100): ["PROCESSED"]}


def test_no_more_is_claimed_than_a_limit_says_while_nodes_are_killed(
    database_url: URL, observer: PersistentBus
) -> None:
    limit, count, kills = 3, 30, 3
    observer.limit(concurrency=limit)
    most, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.is_set():
            most[0] = max(most[0], len(observer.find(states=State.IN_PROCESSING)))

    with ThreadPoolExecutor(1) as watching:
        watched = watching.submit(watch)
        try:
            for number in range(kills):
                # It is alone: another node could take the entry that it is to run when it dies.
                with node_process(database_url, f"killed-{number}") as killed:
                    numbers = range(number * count, (number + 1) * count)
                    killed.tell(f"post -{number + 1} {' '.join(map(str, numbers))}")
                    killed.wait(f"posted {numbers[-1]}", f"run -{number + 1}")
                    killed.kill()
            with node_process(database_url, "last") as last:
                last.tell("go")
                all_ended(observer, kills * (count + 1))
        finally:
            ended.set()
        watched.result()

    assert 0 < most[0] <= limit


def test_no_more_of_a_key_has_places_than_its_limit_says_while_nodes_are_killed(
    database_url: URL, observer: PersistentBus
) -> None:
    """A dozen entries of each key wait for two places; who is killed has some of them."""
    limit, count, kills = 2, 36, 2
    observer.limit(per_key=limit)
    store, ended = engine_of(observer).store, threading.Event()
    lanes = [keyed_lane("bus", key_of(number)) for number in range(KEYS)]
    most = Counter[str]()

    def watch() -> None:
        while not ended.is_set():
            places = store.database.fetch(partial(store.statements.key_places, lanes=lanes))
            for lane, places_of_key in Counter(place[0] for place in places if place[3]).items():
                most[lane] = max(most[lane], places_of_key)

    with ThreadPoolExecutor(1) as watching, node_process(database_url, "last") as last:
        watched = watching.submit(watch)
        try:
            for number in range(kills):
                with node_process(database_url, f"killed-{number}") as killed:
                    numbers = range(number * count, (number + 1) * count)
                    killed.tell(f"keyed {' '.join(map(str, numbers))}")
                    killed.wait(f"posted {numbers[-1]}")
                    killed.kill()
            last.tell("go")
            all_ended(observer, kills * count)
        finally:
            ended.set()
        watched.result()

    assert set(most) == set(lanes)
    assert max(most.values()) <= limit


def test_a_freeze_shorter_than_the_lease_costs_nothing(
    database_url: URL, observer: PersistentBus
) -> None:
    # Long: three beats of the other one may take a slow machine seconds.
    with (
        node_process(database_url, "briefly", lease_seconds=8.0) as briefly,
        node_process(database_url, "other", lease_seconds=8.0),
    ):
        briefly.tell("post -1 1 2")
        briefly.wait("run -1", "done 1", "done 2")
        eventually(lambda: len(observer.history()) == 2, "the two short ones have ended")
        row = engine_of(observer).database.fetch(
            lambda connection: nodes.Nodes().node(connection, "other")
        )
        assert row is not None
        briefly.freeze(lambda: holds_no_lock(observer, "briefly"))
        seen = row.beat

        def beats() -> bool:
            now = engine_of(observer).database.fetch(
                lambda connection: nodes.Nodes().node(connection, "other")
            )
            return now is not None and now.beat >= seen + 3  # three eighths of a lease

        eventually(beats, "the other one has beaten meanwhile")
        briefly.thaw()
        briefly.tell("go")
        briefly.wait("done -1")

        assert all_ended(observer, 3) == {order(number): ["PROCESSED"] for number in (-1, 1, 2)}
        assert state_of(observer, "briefly") == nodes.LIVE


def test_a_node_restarted_under_its_name_resumes_at_once_what_its_killed_self_left(
    database_url: URL, observer: PersistentBus
) -> None:
    with node_process(database_url, "same") as killed:
        killed.tell("post -1")
        killed.wait("run -1")
        killed.kill()
    started = time.monotonic()
    with node_process(database_url, "same") as again:
        assert time.monotonic() - started < LEASE_SECONDS + SLACK_SECONDS
        again.tell("go")
        again.wait("done -1")

        assert all_ended(observer, 1) == {order(-1): ["REAPED", "PROCESSED"]}
        again.tell("stop")
        again.wait("stopped")
    assert state_of(observer, "same") == nodes.STOPPED


def test_several_killed_nodes_lose_nothing_and_no_order_ends_twice(
    database_url: URL, observer: PersistentBus
) -> None:
    numbers = range(1, 61)
    with node_process(database_url, "last") as last:
        for place in range(2):
            with node_process(database_url, f"victim-{place}") as victim:
                mine = [number for number in numbers if number % 2 == place]
                victim.tell("post " + " ".join(map(str, [-1 - place, *mine])))
                victim.wait(f"posted {mine[-1]}")
                victim.kill()
        last.tell("go")

        ended = all_ended(observer, len(numbers) + 2)

    assert Counter(states[-1] for states in ended.values()) == {"PROCESSED": 62}
    assert all(states.count("PROCESSED") == 1 for states in ended.values())

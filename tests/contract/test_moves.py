"""Moves: outcomes and a claim in one statement on SQLite; outcomes that are refused."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from queue_core.finishing.finisher import GATHERED
from queue_core.model.lanes import ANY_NODE
from queue_core.storage.moves import Written
from queue_core.storage.store import FIRST_DATE
from sql.statements.claims import Claim
from sql.statements.outcomes import FinishRow
from sql.tables import ENTRY_COLUMNS
from stickybus import Posting, State
from tests import requirements as needs
from tests.contract.cluster import Cluster
from tests.contract.conftest import Orders
from tests.contract.harness import Order, Recorder, statements_of, states
from tests.contract.plans.cost import cost_of
from tests.contract.plans.tables import BATCH, OWN, fill
from tests.contract.refused_rows import refusing

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@needs.sqlite
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("event_json", "'\"\\ \t\r\n€ \0 \U0001f600\u2028"),
        ("event_json", "x" * 100_000),
        ("event_json", ""),
        ("event_bytes", b"\0\xff"),
        ("event_json", b"bytes by hand"),
        ("headers", b"\xff"),
        ("search_key1", 2**63 - 1),
        ("search_key1", -(2**63)),
    ],
    ids=[
        "marks",
        "long",
        "empty",
        "bytes",
        "bytes as text",
        "bytes as headers",
        "largest",
        "smallest",
    ],
)
def test_what_was_claimed_is_read_as_it_was_written(
    cluster: Cluster, name: str, value: Any
) -> None:
    peer = cluster.join("a")
    ids = cluster.peer("b").bus.post_many(Order(number) for number in range(3))
    with peer.store.database.engine.begin() as connection:
        connection.execute(
            text(f"UPDATE bus_events SET {name} = :value WHERE record_id = :id"),
            {"value": value, "id": ids[1]},
        )

    entries = peer.moves.claim(ANY_NODE, "a", 3).entries

    assert [entry.record_id for entry in entries] == ids
    assert getattr(entries[1], name) == value
    assert [entry.event_json for entry in entries[::2]] == ['{"number":0}', '{"number":2}']


@needs.sqlite
def test_what_was_claimed_and_can_not_be_read_at_first_is_read_again_and_not_claimed_again(
    cluster: Cluster,
) -> None:
    """Bytes that are no text raise the first time that a process reads such."""
    peer = cluster.join("a")
    ids = cluster.peer("b").bus.post_many(Order(number) for number in range(3))
    with peer.store.database.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE bus_events SET headers = CAST(X'ff' AS TEXT) WHERE record_id = 2"
        )

    assert [entry.record_id for entry in peer.moves.claim(ANY_NODE, "a", 3).entries] == ids


@needs.sqlite
@pytest.mark.parametrize("failures", [1, 99])
def test_a_statement_that_has_committed_is_never_run_again_for_its_answer(
    cluster: Cluster, orders: Orders, failures: int
) -> None:
    numbers, reads = itertools.count(1), list[int]()

    def work(connection: Connection) -> int:
        number = next(numbers)
        connection.execute(orders.add(number))
        return number

    def then(_connection: Connection, number: int) -> int:
        reads.append(number)
        if len(reads) <= failures:
            raise DBAPIError.instance(
                "SELECT", {}, sqlite3.OperationalError("database is locked"), sqlite3.Error
            )
        return number

    write_autocommit = cluster.peer("a").store.database.write_autocommit
    if failures == 1:
        assert write_autocommit(work, then) == 1
    else:
        with pytest.raises(DBAPIError, match="locked"):
            write_autocommit(work, then)

    assert orders.numbers() == [1]
    assert reads == [1, 1]


def test_retries_alone_touch_no_history(cluster: Cluster) -> None:
    node = cluster.join("a", handler_threads=1)
    node.handler = Recorder(failures=1)
    node.bus.post(Order(1))
    node.claim()
    node.lifecycle.pool.run_submitted()

    with statements_of(node.store.database) as statements:
        node.lifecycle.finisher.turn()

    assert any("bus_events SET" in text for text in statements.texts)
    assert not [
        text
        for text in statements.texts
        if "bus_events_history" in text or "bus_events_move" in text
    ]


@pytest.mark.parametrize(("outcomes", "goes_on"), [(1, False), (2, True)])
def test_a_finish_loop_waits_to_be_woken_after_a_lone_outcome(
    cluster: Cluster, outcomes: int, *, goes_on: bool
) -> None:
    """After several it gathers the next ones at once."""
    node = cluster.join("a")
    node.bus.post_many(Order(number) for number in range(outcomes))
    node.claim()
    node.lifecycle.pool.run_submitted()
    finisher = node.lifecycle.finisher
    assert (finisher.turn() == 0) is goes_on
    assert len(node.bus.history()) == outcomes
    assert finisher.turn() > 0


@needs.one_writer
def test_one_loop_writes_while_the_other_does_but_leaves_few_outcomes_to_it(
    cluster: Cluster,
) -> None:
    node = cluster.join("a", handler_threads=1, max_entries_claimed=GATHERED)
    finisher, record = node.lifecycle.finisher, node.moves.record
    node.bus.post_many(Order(number) for number in range(2 * GATHERED))
    assert len(finisher.loops) == 2
    under_way, go_on = threading.Event(), threading.Event()

    def slow_once(*arguments: Any) -> Written:
        if not under_way.is_set():
            under_way.set()
            assert go_on.wait(30)
        return record(*arguments)

    def run(entries: int) -> None:
        for _ in range(entries):
            node.lifecycle.pool.take(node.lifecycle.pool.tasks.get_nowait())

    vars(node.moves)["record"] = slow_once
    node.lifecycle.pool.runner.accepting = True
    node.claim()
    run(1)
    first = threading.Thread(target=finisher.turn_in_time)
    first.start()
    try:
        assert under_way.wait(30)
        run(GATHERED - 1)
        assert finisher.turn_in_time() > 0
        assert node.bus.history() == []
        node.claim()
        run(1)
        assert finisher.turn_in_time() == 0
        assert len(node.bus.history()) == GATHERED
    finally:
        go_on.set()
        first.join()
    node.run()
    assert states(node.bus.history()) == [State.PROCESSED] * (2 * GATHERED)
    assert sorted(node.handler.numbers()) == list(range(2 * GATHERED))


@needs.sqlite
def test_a_move_costs_the_same_among_a_hundred_thousand_entries(
    cluster: Cluster, engine: Engine
) -> None:
    store = cluster.peer("b").store
    # With a key: an index without statistics makes older versions of SQLite take the table for a
    # large one.
    cluster.peer("b").bus.post_many(
        [Posting(event=Order(number), search_key2=1) for number in range(3)]
    )
    with engine.connect() as connection:
        connection.exec_driver_sql("ANALYZE")  # three rows, which it costs nothing to read

    def cost(rows: int) -> int:
        """Return the cost of two moves: one claims, the other finishes that, too."""
        fill(engine, rows)
        with store.database.autocommit.connect() as connection, cost_of(connection) as cost:
            claimed = list[Sequence[Any]]()
            for _ in range(2):
                endings = [
                    FinishRow(
                        entry["record_id"],
                        entry["claim_count"],
                        entry["created_date"],
                        "PROCESSED",
                        NOW,
                    )
                    for row in claimed
                    for entry in (dict(zip(ENTRY_COLUMNS, row, strict=True)),)
                ]
                endings.sort(key=lambda ending: ending.record_id)
                claim = Claim(OWN, "x", BATCH, FIRST_DATE, NOW, NOW + timedelta(minutes=5))
                moved = store.statements.move(
                    connection, owner="x", batch=store.statements.batch(endings), claim=claim
                )
                ended, claimed = moved(connection)
                assert ended == {ending.record_id for ending in endings}
                assert len(claimed) == BATCH
        return cost[0]

    few = cost(1_000)
    assert cost(100_000) <= 2 * few


@pytest.mark.parametrize("taken", [True, False])
def test_only_of_an_id_that_is_taken_it_is_said_that_history_holds_other_content(
    cluster: Cluster, engine: Engine, caplog: pytest.LogCaptureFixture, *, taken: bool
) -> None:
    peer = cluster.join("a")
    record_id = peer.bus.post(Order(1))
    if taken:
        row = {"record_id": record_id, "finished_date": NOW, "processing_state": "PROCESSED"}
        past = peer.store.statements.past
        with peer.store.database.begin() as connection:
            connection.execute(past.insert(), [{**row, "class_name": "Order"}])
        peer.run()
    else:
        refused = refusing(engine, "bus_events_history", "class_name", "Order")
        with refused, suppress(DBAPIError):
            peer.run()

    assert ("holds other content under an id" in caplog.text) == taken
    assert [entry.record_id for entry in peer.bus.find()] == [record_id]

"""Claims in the transaction that writes outcomes, on a database whose writers take turns."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from queue_core.storage.moves import Written
from sql.database import COMMITTED
from sql.statements.claims import Claim
from stickybus import ImmediateRetries, State
from tests import requirements as needs
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import (
    Order,
    Recorder,
    elsewhere,
    lost_answers,
    statements_of,
    states,
)

BATCH, ORDERS = 10, 30


def node_with_backlog(cluster: Cluster) -> Peer:
    """A node that has claimed and run the first ten of thirty orders.

    Nothing of that is written.
    """
    node = cluster.join("a", handler_threads=1, max_entries_claimed=BATCH, queue_capacity=BATCH)
    node.bus.post_many(Order(number) for number in range(ORDERS))
    node.claim()
    node.lifecycle.pool.run_submitted()
    assert node.handler.numbers() == list(range(BATCH))
    return node


def all_once(node: Peer) -> bool:
    """Whether the rest is delivered, and each order has been handled once."""
    node.run()
    numbers = sorted(node.handler.numbers())
    return (
        numbers == list(range(ORDERS)) and states(node.bus.history()) == [State.PROCESSED] * ORDERS
    )


def test_the_next_claim_goes_along_with_the_outcomes_where_writers_take_turns(
    cluster: Cluster,
) -> None:
    node = node_with_backlog(cluster)
    dialect = node.store.database.dialect

    with statements_of(node.store.database) as statements:
        node.lifecycle.finisher.turn()

    assert node.numbers_held() == (
        list(range(BATCH, 2 * BATCH)) if dialect.capabilities.one_writer else []
    )
    if dialect.capabilities.one_writer:
        assert not statements.starting_with("SELECT (SELECT")
    assert all_once(node)


@pytest.mark.parametrize("committed", [True, False])
def test_an_error_of_the_claim_along_is_none_of_the_outcome(
    cluster: Cluster,
    committed: bool,  # noqa: FBT001 -- a case
) -> None:
    node = cluster.join("a", handler_threads=1, max_entries_claimed=1, queue_capacity=1)
    node.bus.post_many(Order(number) for number in range(3))
    node.claim()
    node.lifecycle.pool.run_submitted()
    record, failures = node.moves.record, list[ValueError]()

    def record_badly(*arguments: Any) -> Written:
        if failures or arguments[-1] is None:
            return record(*arguments)
        error = ValueError("a date in what was claimed that nobody can read")
        failures.append(error)
        if committed:
            record(*arguments)
            error.add_note(COMMITTED)
        raise error

    vars(node.moves)["record"] = record_badly
    with suppress(ValueError):
        node.lifecycle.finisher.turn()
    node.lifecycle.finisher.turn()
    cluster.live(30, node)
    node.run()

    assert bool(failures) == node.store.database.dialect.capabilities.one_writer
    assert sorted(node.handler.numbers()) == [0, 1, 2]
    assert states(node.bus.history()) == [State.PROCESSED] * 3
    assert not node.lifecycle.ledger


def test_a_node_without_a_lease_claims_nothing_along(cluster: Cluster) -> None:
    node = node_with_backlog(cluster)
    cluster.clock.advance(seconds=node.node.lease.left_seconds)

    node.lifecycle.finisher.turn()

    assert node.numbers_held() == []
    node.beat()
    assert all_once(node)


@needs.one_writer
def test_what_was_claimed_along_is_not_swept_before_the_ledger_knows_of_it(
    cluster: Cluster,
) -> None:
    node = node_with_backlog(cluster)
    record, begun = node.moves.record, list[bool]()

    def may_claim_along() -> None:
        with node.lifecycle.holdings.gates.claiming_along() as more:
            begun.append(more)

    def recorded_and_swept(*arguments: Any) -> Written:
        written = record(*arguments)
        node.lifecycle.holdings.doubt()
        elsewhere(node.lifecycle.claim_loop.turn)
        elsewhere(may_claim_along)  # else a sweep might have to wait for ever
        return written

    vars(node.moves)["record"] = recorded_and_swept
    node.lifecycle.finisher.turn()

    assert begun == [False]
    assert node.numbers_held() == list(range(BATCH, 2 * BATCH))
    node.lifecycle.claim_loop.turn()
    with node.lifecycle.holdings.gates.claiming_along() as more:
        assert more
    assert all_once(node)


@needs.one_writer
def test_what_was_claimed_along_is_not_taken_for_an_announced_commit(cluster: Cluster) -> None:
    """SQLite gives an id that was announced and rolled back to the next entry.

    That entry may be another node's.
    """
    node = cluster.join(
        "a", handler_threads=BATCH, max_entries_claimed=BATCH, queue_capacity=ORDERS
    )
    cluster.peer("b").bus.post_many(Order(number) for number in range(ORDERS))
    node.claim()
    node.lifecycle.pool.run_submitted()
    record = node.moves.record

    def recorded_and_looked_up(*arguments: Any) -> Written:
        written = record(*arguments)
        node.lifecycle.claim_loop.announced.add([entry.record_id for entry in node.bus.find()])
        elsewhere(node.lifecycle.claim_loop.turn)
        return written

    vars(node.moves)["record"] = recorded_and_looked_up
    node.lifecycle.finisher.turn()
    del vars(node.moves)["record"]

    assert node.lifecycle.pool.tasks.qsize() == BATCH
    assert all_once(node)


@needs.one_writer
def test_two_claims_at_a_time_take_no_more_than_there_is_room_for(cluster: Cluster) -> None:
    node = node_with_backlog(cluster)
    claimer = node.lifecycle.claimer
    ending = [record_id for record_id, _ in node.lifecycle.ledger.held()]

    limits = list[int]()

    def write(claim: Claim | None) -> None:
        limits.append(0 if claim is None else claim.limit)

    def write_beside_another(claim: Claim | None) -> None:
        write(claim)
        elsewhere(lambda: claimer.claim_along(ending, write))

    claimer.claim_along(ending, write_beside_another)
    claimer.claim_along(ending, write)

    assert limits == [BATCH, 0, BATCH]


@needs.one_writer
def test_a_claim_whose_commit_gave_no_answer_is_given_back_and_the_outcomes_are_written_again(
    cluster: Cluster,
) -> None:
    node = node_with_backlog(cluster)
    with (
        lost_answers(node.store.database, "INSERT INTO bus_events_move", committed=True) as cut,
        pytest.raises(DBAPIError),
    ):
        node.lifecycle.finisher.turn()
    assert cut
    assert len(node.lifecycle.ledger) == BATCH  # what was claimed along is in the table alone

    node.lifecycle.finisher.turn()
    node.lifecycle.claim_loop.turn()

    assert all_once(node)


@needs.one_writer
def test_claims_along_take_the_lanes_in_turns(cluster: Cluster) -> None:
    node = cluster.join("a", handler_threads=1, max_entries_claimed=BATCH, queue_capacity=BATCH)
    node.bus.post_many(Order(number) for number in range(100))
    cluster.peer("b").bus.post_many(Order(number) for number in range(100, 130))  # for any node
    node.claim()

    lanes = list[set[bool]]()
    for _ in range(4):
        node.lifecycle.pool.run_submitted()
        node.lifecycle.finisher.turn()
        lanes.append({number >= 100 for number in node.numbers_held()})

    assert lanes == [{False}, {True}, {False}, {True}]


@needs.one_writer
def test_an_outcome_that_comes_in_the_other_loops_empty_turn_is_written_next(
    cluster: Cluster,
) -> None:
    node, pauses = cluster.join("a"), list[float]()
    finisher = node.lifecycle.finisher
    turn = finisher.turn
    node.bus.post(Order(1))

    def empty_turn() -> float:
        pause = turn()
        node.lifecycle.pool.run_submitted()
        pauses.append(finisher.turn_in_time())  # of the loop that was woken
        return pause

    vars(finisher)["turn"] = empty_turn
    pauses.append(finisher.turn_in_time())

    assert pauses == [60.0, 0.0]


@needs.one_writer
def test_a_claim_is_not_forgotten_whose_outcomes_are_refused_after_it(cluster: Cluster) -> None:
    """Outcomes that history keeps are written last, in a transaction of their own."""
    node = cluster.join(
        "a",
        handler_threads=1,
        max_entries_claimed=2,
        queue_capacity=2,
        history="failures",
        retry=ImmediateRetries(0),
    )
    node.handler = Recorder(failures=1)
    failing, *_ = node.bus.post_many(Order(number) for number in range(4))
    node.claim()
    node.store.database.write(
        lambda connection: connection.execute(
            text(
                "INSERT INTO bus_events_history (record_id, class_name, event_json, created_date, "
                "effective_date, finished_date, processing_state, search_key1, search_key2) SELECT "
                ":id, 'Other', '{}', created_date, created_date, created_date, 'FAILED', 0, 0 "
                "FROM bus_events WHERE record_id = :id"
            ),
            {"id": failing},
        )
    )
    node.lifecycle.pool.run_submitted()
    node.lifecycle.finisher.turn()
    node.lifecycle.claim_loop.turn()

    node.run()
    assert sorted(node.handler.numbers()) == [0, 1, 2, 3]

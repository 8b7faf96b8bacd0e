"""The fence: whoever lost an entry, however late he writes, changes nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import insert, literal, select, update

from queue_core.model.outcome import Finished, Outcome, Parked, Released, Retried
from queue_core.storage.moves import Written, batch_of
from sql.statements.base import AVAILABLE
from stickybus import Entry, EntryContext, State
from tests.contract.cluster import Cluster, Peer, born_claimed, sample
from tests.contract.conftest import Orders
from tests.contract.harness import Order, Recorder, engine_of, eventually
from tests.experiments.sessions import session_id, wait_until_blocked

LABELS = {"table": "bus_events", "queue_name": "bus"}


def zombie_and_heir(cluster: Cluster) -> tuple[Peer, Peer, Entry]:
    """A node that claimed an entry and was declared dead, its heir, and the entry as claimed."""
    zombie, heir = cluster.join("a"), cluster.join("b")
    record_id = zombie.bus.post(Order(1))
    [entry] = zombie.bus.find(record_ids=[record_id])
    cluster.bury("a", heir)
    return zombie, heir, entry


def finished(entry: Entry, peer: Peer) -> Finished:
    return Finished(
        entry=entry,
        state=State.PROCESSED,
        started_date=None,
        finished_date=peer.lifecycle.clock.now(),
        error_count=0,
        progress={},
    )


def retried(entry: Entry, peer: Peer) -> Retried:
    now = peer.lifecycle.clock.now()
    return Retried(entry=entry, at=now, error_count=1, progress={}, started_date=now)


def write(peer: Peer, outcome: Outcome) -> None:
    peer.lifecycle.finisher.complete(outcome)
    peer.lifecycle.finisher.turn()


def test_a_late_finisher_changes_nothing_and_is_counted(cluster: Cluster) -> None:
    zombie, heir, entry = zombie_and_heir(cluster)
    lost = sample("claims_lost_total", LABELS)

    write(zombie, finished(entry, zombie))

    assert [past.processing_state for past in heir.bus.history()] == [State.REAPED]
    assert len(heir.bus.find()) == 1
    assert sample("claims_lost_total", LABELS) == lost + 1
    heir.run()
    assert [past.processing_state for past in heir.bus.history()] == [
        State.REAPED,
        State.PROCESSED,
    ]


def test_a_handler_that_outlives_its_node_ran_twice_but_its_outcome_is_recorded_once(
    cluster: Cluster,
) -> None:
    zombie, heir = cluster.join("a"), cluster.join("b")
    zombie.handler = Recorder(hold=True)
    zombie.bus.post(Order(1))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(zombie.lifecycle.run_due)
        zombie.handler.wait()
        cluster.bury("a", heir)
        heir.run()
        zombie.handler.release()
        late.result()

    assert (zombie.handler.calls, heir.handler.calls) == (1, 1)
    assert [past.processing_state for past in heir.bus.history()] == [
        State.REAPED,
        State.PROCESSED,
    ]
    assert heir.bus.find() == []


def test_a_late_retry_changes_nothing(cluster: Cluster) -> None:
    zombie, heir, entry = zombie_and_heir(cluster)
    [copy] = heir.bus.find()
    lost = sample("claims_lost_total", LABELS)

    write(zombie, retried(entry, zombie))

    assert heir.bus.find() == [copy]
    assert sample("claims_lost_total", LABELS) == lost + 1


def swept(cluster: Cluster) -> tuple[Peer, Entry, Entry]:
    """An entry before the sweep took it, and as the next claim of the same node holds it."""
    peer = cluster.join("a")
    [record_id] = born_claimed(engine_of(peer.bus), "a", 1)
    [before] = peer.bus.find(record_ids=[record_id])
    peer.claim()
    peer.claim()
    [after] = peer.bus.find()
    assert (before.claim_count, after.claim_count, after.processing_owner) == (1, 3, "a")
    return peer, before, after


def test_the_next_claim_of_the_same_node_is_fenced_from_the_one_before(cluster: Cluster) -> None:
    peer, before, after = swept(cluster)

    for outcome in (finished(before, peer), retried(before, peer)):
        write(peer, outcome)

    assert peer.bus.find() == [after]
    assert peer.bus.history() == []
    peer.run()
    assert [past.record_id for past in peer.bus.history()] == [after.record_id]


def test_late_releases_and_parkings_change_nothing(cluster: Cluster) -> None:
    peer, before, after = swept(cluster)

    for outcome in (Released(entry=before), Parked(entry=before)):
        write(peer, outcome)

    assert peer.bus.find() == [after]


def test_an_entry_claimed_again_while_its_last_outcome_was_written_stays_held(
    cluster: Cluster,
) -> None:
    """The claim loop may be faster than the rest of the finish loop's turn."""
    peer = cluster.join("a")
    record_id = peer.bus.post(Order(1))
    [entry] = peer.bus.find()
    record = peer.moves.record

    def recorded_and_claimed(*arguments: Any) -> Written:
        written = record(*arguments)
        assert peer.claim() == [record_id]
        return written

    vars(peer.moves)["record"] = recorded_and_claimed
    peer.lifecycle.finisher.complete(retried(entry, peer))
    peer.lifecycle.finisher.write_all()
    del vars(peer.moves)["record"]

    assert record_id in peer.lifecycle.ledger
    cluster.clock.advance(seconds=3)
    peer.beat()
    peer.claim()
    [running] = peer.bus.find()
    # The sweep let it be.
    assert (running.processing_state, running.claim_count) == (State.IN_PROCESSING, 2)


def test_a_finish_that_waits_for_the_row_while_it_changes_hands_deletes_nothing(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a")
    record_id = peer.bus.post(Order(1))
    [entry] = peer.bus.find()
    database, main = peer.store.database, peer.store.statements.main
    sessions, started = list[int](), threading.Event()

    def late() -> set[int]:
        def work(connection: object) -> set[int]:
            if not database.dialect.capabilities.one_writer:
                sessions.append(session_id(connection))  # type: ignore[arg-type]  # a Connection, from Database
            batch = batch_of(peer.store, [finished(entry, peer)])
            return peer.store.statements.finish(connection, owner="a", batch=batch)  # type: ignore[arg-type]  # as above

        started.set()
        return database.write(work)

    with ThreadPoolExecutor(1) as pool:
        with database.begin() as taking:
            taking.execute(
                update(main)
                .where(main.c.record_id == record_id)
                .values(
                    claim_count=main.c.claim_count + 1,
                    processing_state=AVAILABLE,
                    processing_owner=None,
                )
            )
            waiting = pool.submit(late)
            assert started.wait(10)
            # One writer waits for the file, before it begins.
            if not database.dialect.capabilities.one_writer:
                eventually(lambda: sessions, "the finish has begun")
                with database.engine.connect() as observer:
                    wait_until_blocked(observer, sessions[0])
                    observer.rollback()
        assert waiting.result(timeout=30) == set()

    [row] = peer.bus.find()
    assert (row.processing_state, row.claim_count) == (State.AVAILABLE, 2)
    assert peer.bus.history() == []


def test_an_exactly_once_handler_that_lost_its_entry_is_rolled_back(
    cluster: Cluster, orders: Orders
) -> None:
    peer = cluster.join("a")
    main = peer.store.statements.main

    def handle(event: Order, context: EntryContext) -> None:
        assert context.connection is not None
        if context.attempt == 1 and not stolen.is_set():
            stolen.set()
            # Taken over before its first write, which on SQLite takes the write lock.
            peer.store.database.write(
                lambda connection: connection.execute(
                    update(main)
                    .where(main.c.record_id == context.record_id)
                    .values(claim_count=main.c.claim_count + 1)
                )
            )
        context.connection.execute(orders.add(event.number))

    stolen = threading.Event()
    peer.bus.unsubscribe(peer.handle)
    peer.bus.subscribe(Order, handle, exactly_once=True)
    lost = sample("claims_lost_total", LABELS)
    peer.bus.post(Order(1))

    peer.lifecycle.run_due()

    assert orders.numbers() == []
    assert peer.bus.history() == []
    assert sample("claims_lost_total", LABELS) == lost + 1
    cluster.clock.advance(seconds=3)
    peer.beat()
    peer.claim()  # the sweep finds it: nobody's ledger knows that claim
    peer.run()
    assert orders.numbers() == [1]
    assert [past.processing_state for past in peer.bus.history()] == [State.PROCESSED]


def test_an_outcome_that_history_refuses_is_not_run_again_and_again(cluster: Cluster) -> None:
    """Somebody wrote to history by hand. Given back, the entry would run until somebody notices."""
    peer = cluster.join("a")
    refused, other = peer.bus.post_many([Order(1), Order(2)])
    main, past = peer.store.statements.main, peer.store.statements.past
    changed = {
        "finished_date": literal(cluster.clock.now(), past.c.finished_date.type),
        "class_name": literal("Other"),
    }
    forged = {column.name: changed.get(column.name, column) for column in main.c} | changed
    rows = select(*forged.values()).where(main.c.record_id == refused)
    peer.store.database.write(
        lambda connection: connection.execute(insert(past).from_select(list(forged), rows))
    )

    for _ in range(3):
        peer.run()
        cluster.tick(5, peer)

    assert peer.handler.numbers() == [1, 2]
    assert [(entry.record_id, entry.processing_state) for entry in peer.bus.find()] == [
        (refused, State.IN_PROCESSING)
    ]
    assert other in [entry.record_id for entry in peer.bus.history()]

"""The numbers of queues and namespaces."""

from __future__ import annotations

import pytest

from queue_core.runtime.manual_clock import ManualClock
from tests.contract.work_queue.backends import backend_of
from tests.contract.work_queue.claiming import claimed
from work_queue.counts import NamespaceStats, WorkStats
from work_queue.document import DocClaim
from work_queue.modification import Delete, Insert, InsertDoc
from work_queue.storage import folding
from work_queue.work_queue import WorkQueue


def fill(work: WorkQueue, **sizes: int) -> None:
    work.modify(*(Insert(queue=queue) for queue, size in sizes.items() for _ in range(size)))


def test_scenario_37_queues_are_counted_by_name_and_prefix(work: WorkQueue) -> None:
    fill(work, **{"one": 1, "two": 2, "three": 3, "a=b": 1, "t_o": 1, "TWO": 1})
    assert work.queues("two", "bogus") == {"two": 2}
    assert work.queues("a=b") == {"a=b": 1}
    assert work.queues(prefixes=["t"]) == {"two": 2, "three": 3, "t_o": 1}
    assert work.queues(prefixes=["t_"]) == {"t_o": 1}
    assert work.queues("one", prefixes=["TW", "%"]) == {"one": 1, "TWO": 1}
    assert len(work.queues()) == 6


@pytest.mark.database_only
def test_more_names_and_prefixes_are_asked_for_than_a_statement_can_name(work: WorkQueue) -> None:
    fill(work, a=1, b=2, c=1, x9=1)
    work.modify(InsertDoc(namespace="x9", key="k"))
    none, prefixes = [f"none {number}" for number in range(70_000)], ["b", "c"]
    prefixes[1:1] = [f"x{number}" for number in range(2_000)]

    assert work.queues(*none, "a", prefixes=prefixes) == {"a": 1, "b": 2, "c": 1, "x9": 1}
    assert work.queues(*none, "a", "c", prefixes=["x9"], limit=2) == {"a": 1, "c": 1}
    found = work.queue_stats("c", prefixes=prefixes, limit=2)
    assert [(stats.queue, stats.tasks) for stats in found] == [("b", 2), ("c", 1)]
    assert [stats.namespace for stats in work.namespace_stats(prefixes=prefixes)] == ["x9"]


def test_scenario_38_statistics_tell_claimed_from_available(work: WorkQueue) -> None:
    fill(work, free=2, partly=3)
    claimed(work, "partly")
    assert work.queue_stats() == [
        WorkStats("free", 2, 0, 2, 0, 0),
        WorkStats("partly", 3, 1, 2, 0, 1),
    ]


def test_scenario_39_a_limit_counts_queues_that_are_there(work: WorkQueue) -> None:
    fill(work, a=1, b=1, c=1)
    work.modify(*(Delete(task.ref) for task in work.tasks("a")))
    assert work.queues(limit=2) == {"b": 1, "c": 1}
    assert [stats.queue for stats in work.queue_stats(limit=1)] == ["b"]


@pytest.mark.served_everywhere
def test_scenario_40_future_tasks_are_told_from_claimed_ones(
    work: WorkQueue, clock: ManualClock
) -> None:
    work.modify(Insert(queue="a", delay=50))
    work.modify(work.insert("a").change(delay=500))
    work.insert("a")
    for _ in range(2):
        work.modify(claimed(work).release())
    held = claimed(work)
    work.insert("a")
    assert work.queue_stats("a") == [WorkStats("a", 4, 1, 1, 2, 3)]
    work.modify(held.delete())
    assert work.queue_stats("a") == [WorkStats("a", 3, 0, 1, 2, 0)]
    clock.advance(seconds=60)
    assert work.queue_stats("a") == [WorkStats("a", 3, 0, 2, 1, 0)]


@pytest.mark.parametrize("seconds", [1, 59, 61, 3600])
def test_a_future_task_is_counted_until_it_arrives(
    work: WorkQueue, clock: ManualClock, seconds: int
) -> None:
    clock.advance(seconds=13.5)
    work.modify(*(Insert(queue="a", delay=seconds) for _ in range(3)))
    [stats] = work.queue_stats()
    assert (stats.tasks, stats.future, stats.available) == (3, 3, 0)
    clock.advance(seconds=seconds - 0.5)
    assert work.queue_stats()[0].future == 3
    clock.advance(seconds=0.5)
    [stats] = work.queue_stats()
    assert (stats.tasks, stats.future, stats.available) == (3, 0, 3)
    claimed(work)
    [stats] = work.queue_stats()
    assert (stats.tasks, stats.claimed, stats.future, stats.available) == (3, 1, 0, 2)


def test_scenario_41_docs_are_counted_by_namespace(work: WorkQueue) -> None:
    for namespace, keys in {"x/1": "ab", "x/2": "a", "y": "abc"}.items():
        work.modify(*(InsertDoc(namespace=namespace, key=key) for key in keys))
    [docs] = work.claim_docs(DocClaim("x/1", "a"))
    assert work.namespace_stats() == [
        NamespaceStats("x/1", 2, 1),
        NamespaceStats("x/2", 1, 0),
        NamespaceStats("y", 3, 0),
    ]
    work.modify(docs.release())
    assert work.namespace_stats("x/1") == [NamespaceStats("x/1", 2, 0)]
    assert len(work.namespace_stats(prefixes=["x/"])) == 2
    assert len(work.namespace_stats(limit=2)) == 2
    work.modify(work.docs("x/2")[0].delete())
    assert work.namespace_stats("x/2") == []


def test_counts_are_folded_and_stay_the_same(
    work: WorkQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3 * folding.ROWS):
        work.insert(f"q{number % 3}", delay=number)
    expected = work.queue_stats()
    backend = backend_of(work)
    backend.folding.fold(10_000)
    counts, database = backend.statements.counts, backend.database
    rows = database.fetch(lambda connection: connection.execute(counts.queues.select()).all())
    assert len(rows) < folding.ROWS
    assert work.queue_stats() == expected
    clock.advance(seconds=10_000)
    monkeypatch.setattr(folding, "MOST_ROWS", 3)
    assert {stats.future for stats in work.queue_stats()} == {0}
    rows = database.fetch(lambda connection: connection.execute(counts.queues.select()).all())
    assert len(rows) == 3

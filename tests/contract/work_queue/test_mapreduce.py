"""The example of MapReduce counts each word once, whatever happens to its workers."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import URL

from examples.mapreduce.mapreduce import FailedTaskError, MapReduce
from examples.mapreduce.word_count import word_count
from stickybus import ExponentialRetries, Insert, Worker, WorkQueue, create_schema
from tests import requirements as needs
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.work_queue.backends import address_of
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.workers.handlers import SHORT

pytestmark = pytest.mark.slow

WORDS = MapReduce(
    "words",
    map=lambda text: ((word, 1) for word in text.split()),
    reduce=lambda _word, counts: sum(counts),
    combine=lambda _word, counts: [sum(counts)],
    shards=1,
)
ROOT = Path(__file__).parents[3]


def command(url: URL | str, *options: str) -> list[str]:
    address = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    return [sys.executable, "-m", "examples.mapreduce.word_count", f"--url={address}", *options]


def count(url: URL | str, *options: str) -> str:
    """Run the example, which compares its result with what one process counts."""
    done = subprocess.run(
        command(url, *options),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3_050,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def address(make_work: MakeWork, database_url: URL) -> str:
    """That of the database, or of a service on it."""
    return address_of(make_work(), database_url)


@pytest.mark.timeout(240)
def test_scenario_92_words_of_some_documents_are_counted(address: str) -> None:
    shown = count(address, "--documents=17", "--mappers=3", "--reducers=3", "--timeout=200")

    assert "17 documents, 1020 words" in shown
    assert "right" in shown


@pytest.mark.timeout(240)
@needs.any_database
def test_scenario_92_words_are_counted_once_though_workers_are_killed(address: str) -> None:
    shown = count(
        address,
        "--documents=400",
        "--mappers=10",
        "--reducers=6",
        "--kills=5",
        "--lease=1",
        "--timeout=200",
    )

    assert "right" in shown
    assert "5 processes killed" in shown


@pytest.mark.full_size
@pytest.mark.timeout(3_100)
def test_scenario_92_words_of_thousands_of_documents_are_counted_though_workers_are_killed(
    address: str,
) -> None:
    shown = count(
        address,
        "--documents=5000",
        "--mappers=100",
        "--reducers=20",
        "--kills=20",
        "--timeout=3000",
    )

    assert "5000 documents, 300000 words" in shown
    assert "right" in shown
    assert "20 processes killed" in shown


def test_scenario_92_nothing_is_reduced_while_something_is_left_to_map(make_work: MakeWork) -> None:
    work, [shard] = make_work(), WORDS.shard_queues
    work.modify(*(Insert(queue=WORDS.inputs, value=text) for text in ("to be", "or not to be")))
    reducer = Worker(work, WORDS.reducer(work), shard)

    Worker(work, WORDS.map_task, WORDS.inputs).run(limit=1)
    work.insert(shard, {"be": [2]})
    reducer.run(limit=2)

    assert work.queues() == {WORDS.inputs: 1, shard: 1}
    Worker(work, WORDS.map_task, WORDS.inputs).run(limit=1)
    while not WORDS.is_done(work):
        reducer.run(limit=1)
    assert dict(WORDS.results(work)) == {"to": 2, "be": 4, "or": 1, "not": 1}


def test_reducers_that_hold_a_task_each_merge_in_the_end(make_work: MakeWork) -> None:
    work, [shard] = make_work(), WORDS.shard_queues
    work.modify(*(Insert(queue=shard, value={"be": [number]}) for number in range(3)))
    reducers = Worker(work, WORDS.reducer(work), shard, concurrency=3)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(reducers.run)
        try:
            eventually(lambda: WORDS.is_done(work), "a result")
        finally:
            reducers.stop()
        running.result()
    assert dict(WORDS.results(work)) == {"be": 3}


def test_all_tasks_of_a_merge_are_renewed(make_work: MakeWork) -> None:
    work, [shard] = make_work(), WORDS.shard_queues

    def renewed() -> bool:
        return all(task.version > 1 for task in work.tasks(shard))

    def reduce(_word: str, counts: list[int]) -> int:
        eventually(renewed, "a renewal of all")
        return sum(counts)

    work.modify(*(Insert(queue=shard, value={"be": [number]}) for number in (1, 2)))
    slow = replace(WORDS, reduce=reduce)
    Worker(work, slow.reducer(work), shard, lease_seconds=SHORT).run(until_empty=True)
    assert dict(WORDS.results(work)) == {"be": 3}


@pytest.mark.parametrize("queue", [WORDS.inputs, WORDS.shard_queues[0]])
def test_there_is_no_result_without_a_task_that_has_failed(make_work: MakeWork, queue: str) -> None:
    work, [shard] = make_work(), WORDS.shard_queues
    failing = work.insert(queue, 7).id
    work.insert(WORDS.inputs, "to be")
    once = ExponentialRetries(max_retries=0)
    reducer = Worker(work, WORDS.reducer(work), shard, retry=once)

    Worker(work, WORDS.map_task, WORDS.inputs, retry=once).run(until_empty=True)
    reducer.run(limit=2)

    assert work.queues() == {f"{queue}/err": 1, shard: 1}
    with pytest.raises(FailedTaskError, match=f"(?s){failing}.*failed 1 times.*AttributeError"):
        WORDS.is_done(work)
    with pytest.raises(FailedTaskError):
        list(WORDS.results(work))
    work.modify(*(task.replay() for task in work.tasks(f"{queue}/err")))
    with pytest.raises(RuntimeError, match="not all is reduced"):
        list(WORDS.results(work))


def test_what_an_earlier_run_has_left_is_cleared(make_work: MakeWork) -> None:
    work, [shard] = make_work(), WORDS.shard_queues
    for queue in (WORDS.inputs, f"{WORDS.inputs}/err", shard, f"{shard}/err", WORDS.outputs):
        work.modify(*(Insert(queue=queue) for _ in range(3)))
        work.claim(queue, claimant="killed", timeout_seconds=BOUND_SECONDS)
    work.insert("words", "another's")

    WORDS.clear(work)

    assert work.queues() == {"words": 1}


@pytest.mark.timeout(480)  # it runs the program twice
def test_a_failed_mapper_ends_the_program_and_the_next_run_begins_anew(database_url: URL) -> None:
    create_schema(database_url)
    inputs, options = word_count(2).inputs, ("--mappers=1", "--reducers=2", "--timeout=200")
    with WorkQueue(database_url) as work:
        program = subprocess.Popen(
            command(database_url, "--documents=300", *options),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        eventually(lambda: work.queues(inputs))
        failing = work.insert(inputs, 7).id
        shown, told = program.communicate(timeout=200)

        assert program.returncode == 1
        assert shown == ""
        assert f"task '{failing}' of '{inputs}' has failed 5 times" in told
        assert "run the program again" in told
        assert work.queues(f"{inputs}/err") == {f"{inputs}/err": 1}
        assert "right" in count(database_url, "--documents=17", *options)
        assert work.queues() == {}

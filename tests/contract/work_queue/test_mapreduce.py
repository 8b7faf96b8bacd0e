"""The example of MapReduce counts each word once, whatever happens to its workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import URL

from examples.mapreduce.mapreduce import MapReduce
from stickybus import Insert, Worker
from tests import requirements as needs
from tests.contract.work_queue.conftest import MakeWork

pytestmark = pytest.mark.slow

WORDS = MapReduce(
    "words",
    map=lambda text: ((word, 1) for word in text.split()),
    reduce=lambda _word, counts: sum(counts),
    combine=lambda _word, counts: [sum(counts)],
    shards=1,
)
ROOT = Path(__file__).parents[3]


def count(url: URL, *options: str) -> str:
    """Run the example, which compares its result with what one process counts."""
    given = [f"--url={url.render_as_string(hide_password=False)}", *options]
    done = subprocess.run(
        [sys.executable, "-m", "examples.mapreduce.word_count", *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(240)
def test_scenario_92_words_of_some_documents_are_counted(database_url: URL) -> None:
    shown = count(database_url, "--documents=17", "--mappers=3", "--reducers=3", "--timeout=200")

    assert "17 documents, 1020 words" in shown
    assert "right" in shown


@pytest.mark.timeout(240)
@needs.any_database
def test_scenario_92_words_are_counted_once_though_workers_are_killed(
    database_url: URL, database_name: str
) -> None:
    shown = count(
        database_url,
        "--documents=400",
        "--mappers=10",
        "--reducers=6",
        "--kills=5",
        "--lease=1",
        "--timeout=200",
    )

    assert "right" in shown
    assert "5 processes killed" in shown


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

"""Lookups of finished tasks in an archive find what the database found, without it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import Scale, archive_history, find_archived_tasks
from history_pipeline.errors import ArchiveNotFoundError
from queue_core.errors import ConfigurationError, InvalidPostError, NaiveDateTimeError
from stickybus import WorkQueue
from stickybus.cli import main
from tests import requirements as needs
from tests.pipeline.archived_tasks import MIDNIGHT, SAMPLE
from tests.pipeline.tasks import TABLE, finished, write_tasks
from work_queue.storage.rows import finished_of

SEARCHES: list[dict[str, Any]] = [
    {"queue": "push"},
    {"queue": "push", "limit": 0},
    {"queue": "push", "limit": 3},
    {"queue": "mail/err"},
    {"queue": "nowhere"},
    {"ids": ["task-3", "ä", "task-30", "task-99"]},
    {"queue": "mail", "ids": ["task-3", "task-4"]},
    {"queue": "push", "since": MIDNIGHT},
    {"queue": "push", "before": MIDNIGHT},
    {"queue": "push", "since": MIDNIGHT, "before": MIDNIGHT + timedelta(seconds=5), "limit": 2},
]


@needs.any_database
def test_an_archive_answers_as_the_database_did(
    spark: SparkSession, tasks_url: URL, target: str
) -> None:
    # Of two runs, the older one with the higher ids: a task ended late.
    late = finished(31, finished_date=MIDNIGHT - timedelta(seconds=1), queue="push")
    write_tasks(tasks_url, [late])
    work = WorkQueue(tasks_url)
    expected = [work.finished_tasks(**one) for one in SEARCHES]
    work.close()
    archive_history(spark, tasks_url, target, table=TABLE, scale=Scale(run_rows=20))

    for search, tasks in zip(SEARCHES, expected, strict=True):
        found = find_archived_tasks(target, **search)
        assert [finished_of(one, has_value=True) for one in found] == tasks, search
    assert [len(tasks) for tasks in expected[:4]] == [20, 20, 3, 1]
    every = [one.record_id for one in find_archived_tasks(target)]
    assert (len(every), every[0], every[-2:]) == (SAMPLE + 1, SAMPLE, [1, 31])
    [bare] = find_archived_tasks(target, ids=["task-1"], with_values=False)
    assert (bare.value_json, bare.not_archived, bare.claims) == (None, (), 1)


@needs.any_database
def test_a_lookup_says_what_was_not_archived(
    spark: SparkSession, tasks_url: URL, target: str
) -> None:
    archive_history(spark, tasks_url, target, table=TABLE, without=["payload", "errors"])
    write_tasks(tasks_url, [finished(50, err="KeyError: 'ada'")])
    archive_history(spark, tasks_url, target, table=TABLE)

    whole, failed = find_archived_tasks(target, ids=["task-50", "task-5"])

    assert (whole.err, whole.not_archived) == ("KeyError: 'ada'", ())
    assert (failed.err, failed.value_json) == ("TimeoutError:", None)
    assert failed.not_archived == ("payload", "errors")


@needs.any_database
def test_finished_tasks_of_an_archive_are_listed_without_a_database(
    spark: SparkSession,
    tasks_url: URL,
    target: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    midnight = MIDNIGHT.isoformat()
    archive_history(spark, tasks_url, target, table=TABLE, before=MIDNIGHT, without=["payload"])
    archive_history(spark, tasks_url, target, table=TABLE)
    monkeypatch.delenv("STICKYBUS_URL", raising=False)

    def run(*arguments: str) -> Any:
        assert main(["tasks", "finished", "--archive", target, *arguments]) == 0
        return capsys.readouterr().out

    assert [one["id"] for one in json.loads(run("-q", "mail", "-n", "2", "--json"))] == [
        "task-30",
        "task-27",
    ]
    [seven] = json.loads(run("-t", "task-7", "--json"))
    assert (seven["queue"], seven["value_bytes"]) == ("push", "AP8sCg==")
    [first] = json.loads(run("--before", midnight, "--json"))
    assert (first["id"], "value" in first) == ("task-1", False)
    assert "null" not in run("--before", midnight)
    assert "null" in run("-t", "task-8")
    assert "mail/err" in run("-q", "mail/err", "-V")
    assert len(json.loads(run("-n", "0", "--json"))) == SAMPLE


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"ids": "task-1"}, ConfigurationError),
        ({"ids": [1]}, ConfigurationError),
        ({"ids": ["\udcff"]}, ConfigurationError),
        ({"queue": 5}, ConfigurationError),
        ({"queue": "\udcff"}, ConfigurationError),
        ({"limit": "1"}, InvalidPostError),
        ({"since": datetime(2026, 3, 1)}, NaiveDateTimeError),  # noqa: DTZ001 -- it is refused
        ({}, ArchiveNotFoundError),
    ],
)
def test_what_can_not_be_sought_is_refused(
    target: str, given: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        find_archived_tasks(target, **given)

"""One folder holds archives of entries and of tasks, and each call takes its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import (
    archive_history,
    audit,
    erase_archived,
    find_archived,
    read_archive,
    read_history,
    replay_archive,
    rolled_audit,
    verify_archive,
)
from history_pipeline.errors import ArchiveNotFoundError
from queue_core.errors import ConfigurationError
from tests import requirements as needs
from tests.pipeline.archived_tasks import SAMPLE, archived, in_history
from tests.pipeline.sample import sample_history, write_rows
from tests.pipeline.tasks import TABLE


@needs.any_database
def test_one_folder_holds_archives_of_entries_and_of_tasks(
    spark: SparkSession, tasks_url: URL, target: str
) -> None:
    write_rows(tasks_url, sample_history())
    tasks, entries = in_history(spark, tasks_url), sorted(read_history(spark, tasks_url).collect())
    archive_history(spark, tasks_url, target, table=TABLE)
    archive_history(spark, tasks_url, target)

    assert archived(spark, target) == tasks
    assert sorted(read_archive(spark, target, "bus_events").collect()) == entries
    with pytest.raises(ArchiveNotFoundError, match=f"archives of bus_events, {TABLE}: say which"):
        read_archive(spark, target)
    assert {one.table for one in find_archived(target)} == {"bus_events"}
    for report in (rolled_audit(archive=target), audit(spark, archive=target)):
        assert [one.table_name for one in report.audited] == ["bus_events"]
    for table, count in (("bus_events", len(entries)), (TABLE, SAMPLE)):
        found = verify_archive(target, table=table, database=tasks_url)
        assert (found.entries, found.damaged) == (count, [])


@needs.any_database
@pytest.mark.parametrize(
    "call",
    [
        lambda spark, url, target: replay_archive(spark, url, target, where="true", table=TABLE),
        lambda _spark, url, target: erase_archived(
            target, database=url, record_ids=[1], table=TABLE
        ),
        lambda _spark, _url, target: find_archived(target, table=TABLE),
        lambda _spark, url, _target: rolled_audit(url=url, tables=[TABLE]),
        lambda spark, url, _target: audit(spark, url=url, tables=[TABLE]),
    ],
    ids=["replay", "erasure", "search", "report", "exact report"],
)
def test_what_takes_entries_alone_refuses_tasks(
    spark: SparkSession, tasks_url: URL, target: str, call: Callable[..., object]
) -> None:
    with pytest.raises(ConfigurationError, match=r"it holds tasks, and .* takes entries alone"):
        call(spark, tasks_url, target)


@needs.any_database
def test_an_archive_of_tasks_alone_has_nothing_for_a_report(
    spark: SparkSession, tasks_url: URL, target: str
) -> None:
    archive_history(spark, tasks_url, target, table=TABLE)
    with pytest.raises(ArchiveNotFoundError, match="holds no archive of entries"):
        rolled_audit(archive=target)
    with pytest.raises(ArchiveNotFoundError, match="holds no archive of entries"):
        find_archived(target)

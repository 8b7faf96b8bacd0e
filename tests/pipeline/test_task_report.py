"""The report on finished tasks counts what plain Python counts, wherever the tasks are."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from history_pipeline import Period, TaskAudit, rolled_task_audit, write_page
from history_pipeline.audits.figures import PERCENTS
from history_pipeline.audits.task_figures import TASK_GROUPINGS
from history_pipeline.errors import ArchiveNotFoundError
from history_pipeline.rollups.sketch import RELATIVE_ERROR
from queue_core.errors import ConfigurationError
from stickybus.cli import main
from tests import requirements as needs
from tests.pipeline.arrow_archive import write_archive
from tests.pipeline.sample import START
from tests.pipeline.tasks import TABLE, random_tasks, write_tasks

KEYS = ("queue_name", "error_type", "claimant", "hour")

Row = Mapping[str, Any]


def key_of(row: Row, key: str) -> object:
    if key == "error_type":
        return next(
            (name for name in ("TimeoutError", "KeyError") if name in (row["err"] or "")), None
        )
    if key == "hour":
        return row["finished_date"].replace(minute=0, second=0, microsecond=0)
    return row[{"queue_name": "queue", "claimant": "finished_by"}[key]]


def counted(rows: Iterable[Row]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The statistics of rows, by grouping and keys."""
    groups = dict[tuple[Any, ...], list[Row]]()
    for row in rows:
        for grouping, keys in TASK_GROUPINGS.items():
            if grouping != "error" or row["err"] is not None:
                group = (grouping, *(key_of(row, key) if key in keys else None for key in KEYS))
                groups.setdefault(group, []).append(row)
    return {group: figures(members) for group, members in groups.items()}


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    times = sorted((row["finished_date"] - row["created_date"]).total_seconds() for row in rows)
    shares = times * 2 if len(times) == 1 else times
    hundredths = statistics.quantiles(shares, n=100, method="inclusive")
    return {
        "tasks": len(rows),
        "claims": sum(row["claims"] for row in rows),
        "attempts": sum(row["attempt"] for row in rows),
        "with_error": sum(row["err"] is not None for row in rows),
        "lifetime_count": len(rows),
        "lifetime_avg": pytest.approx(statistics.fmean(times)),
        "lifetime_min": pytest.approx(times[0]),
        "lifetime_max": pytest.approx(times[-1]),
        **{
            f"lifetime_p{percent}": pytest.approx(hundredths[percent - 1], rel=2 * RELATIVE_ERROR)
            for percent in PERCENTS
        },
    }


def told(audit: TaskAudit, table: str = "statistics") -> dict[tuple[Any, ...], dict[str, Any]]:
    return {
        (row.pop("grouping"), *(row.pop(key) for key in KEYS)): row for row in audit.rows(table)
    }


def run(*arguments: str, expect: int = 0) -> None:
    assert main(arguments) == expect


@needs.any_database
def test_live_tasks_are_counted_as_plain_python_counts_them(database_url: URL) -> None:
    rows = random_tasks()
    write_tasks(database_url, rows)
    found = rolled_task_audit(url=database_url)
    assert told(found) == counted(rows)
    assert (found.history, found.archived) == (len(rows), None)


@needs.any_database
def test_live_and_archived_tasks_are_counted_once_and_by_kept_roll_ups(
    database_url: URL, tmp_path: Path
) -> None:
    rows, target = random_tasks(), str(tmp_path / "archive")
    write_archive(database_url, target, [rows[:150], rows[150:200]], table=TABLE)
    write_tasks(database_url, rows[190:])
    both = rolled_task_audit(url=database_url, archive=target)
    assert told(both) == counted(rows)
    assert (both.history, both.archived, both.differing) == (110, 200, ())
    kept = [*Path(target, TABLE, "rollups").iterdir()]
    before = {file: file.stat().st_mtime_ns for file in kept}
    assert kept

    alone = rolled_task_audit(archive=target)

    assert told(alone) == counted(rows[:200])
    assert {file: file.stat().st_mtime_ns for file in kept} == before


def test_only_tasks_that_ended_in_the_period_are_counted(database_url: URL, tmp_path: Path) -> None:
    rows, target = random_tasks(), str(tmp_path / "archive")
    write_archive(database_url, target, [rows[:150]], table=TABLE)
    write_tasks(database_url, rows[150:])
    since, until = START + timedelta(hours=7), START + timedelta(hours=40, seconds=1)
    found = rolled_task_audit(url=database_url, archive=target, period=Period(since, until))
    assert told(found) == counted(within(rows, since, until))
    day = until.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    yesterday = {
        group: row
        for group, row in counted(within(rows, day, day + timedelta(days=1))).items()
        if group[0] in {"total", "queue"}
    }
    compared = [row for row in found.rows("comparison") if row.pop("span") == "yesterday"]
    assert len(yesterday) > 1
    assert {
        (row.pop("grouping"), *(row.pop(key) for key in KEYS)): row for row in compared
    } == yesterday


def within(rows: Iterable[Row], since: datetime, until: datetime) -> list[Row]:
    return [row for row in rows if since <= row["finished_date"] < until]


def test_a_task_that_is_another_one_in_the_archive_makes_the_exit_code_1(
    database_url: URL, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "archive")
    write_archive(database_url, target, [random_tasks(20)], table=TABLE)
    write_tasks(database_url, [*random_tasks(20)[4:6], random_tasks(20)[9] | {"claims": 77}])
    url = database_url.render_as_string(hide_password=False)
    run("report", "--table", TABLE, "--from-archive", target, "--json", "--url", url, expect=1)
    found = json.loads(capsys.readouterr().out)
    assert (found["standing"], found["differing"]) == ("faulty", [10])
    assert found["headline"] == "1 task differs between the database and the archive."


def test_the_page_shows_names_as_names_and_no_value_or_message(
    database_url: URL, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, page = random_tasks(), tmp_path / "tasks.html"
    write_tasks(database_url, rows)
    url = database_url.render_as_string(hide_password=False)
    run("report", "--table", TABLE, "--to", str(page), "--figures", str(tmp_path), "--url", url)
    written = page.read_text(encoding="utf-8")
    assert "Stickybus report on tasks" in written
    assert "<b>300</b><span>tasks ended</span>" in written
    assert written.count("<svg") == 3
    for text in ("TimeoutError", "KeyError", "&lt;script&gt;$\\frac{$ {{ 7 * 7 }}"):
        assert text in written
    for text in ("<script", "ada@example.org", "StrictUndefined"):
        assert text not in written
    texts = (tmp_path / "figures.json").read_text(encoding="utf-8")
    assert json.loads(texts)["history"] == 300
    assert "ada@example.org" not in texts
    assert f"written: {page}" in capsys.readouterr().out.replace("\n", "")


def test_a_history_without_tasks_makes_a_page_too(database_url: URL, tmp_path: Path) -> None:
    found, page = rolled_task_audit(url=database_url), tmp_path / "tasks.html"
    write_page(found, page)
    assert found.rows("statistics") == []
    assert "No task of a queue that keeps history has ended." in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--table", "bus_events"), "holds tasks, and tasks have a page of their own"),
        (("--exact",), "only entries have exact percentiles"),
    ],
)
def test_a_report_on_tasks_and_entries_or_by_spark_is_refused(
    database_url: URL, arguments: Sequence[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = database_url.render_as_string(hide_password=False)
    run("report", "--table", TABLE, "--to", "no.html", "--url", url, *arguments, expect=2)
    assert expected in " ".join(capsys.readouterr().err.split())


def test_a_report_on_nothing_and_an_archive_without_tasks_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Give url=, archive= or both"):
        rolled_task_audit()
    with pytest.raises(ArchiveNotFoundError, match="holds no archive of tasks"):
        rolled_task_audit(archive=str(tmp_path))

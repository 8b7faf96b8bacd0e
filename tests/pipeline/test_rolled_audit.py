"""Audits by roll-ups: what Spark finds by all rows, and what is kept beside an archive."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import Audit, Period, archive_history, audit, compact_archive, rolled_audit
from history_pipeline.audits.figures import KEYS, TableAudit
from history_pipeline.errors import ArchiveDamagedError
from history_pipeline.rollups import rolled_tables
from history_pipeline.rollups.sketch import RELATIVE_ERROR
from history_pipeline.source.pages import pages
from tests import requirements as needs
from tests.pipeline import oracle
from tests.pipeline.comparison import differences
from tests.pipeline.random_history import random_history
from tests.pipeline.sample import ended, write_rows

MAIN = "bus_events"
DATES = ("created_date", "effective_date", "started_date", "finished_date")


def days_of_history(
    seed: int, rows: int, *, first_id: int = 1, day: int = 0
) -> list[dict[str, Any]]:
    """`random_history`, some days later, with other ids."""
    found = random_history(seed, rows)
    for row in found:
        row["record_id"] += first_id - 1
        for name in DATES:
            row[name] = row[name] and row[name] + timedelta(days=day)
    return found


def unlike(found: Audit, exact: Audit) -> Iterator[str]:
    """What differs between two audits, but for percentiles within the error."""
    for key in ("audited", "faults", "period"):
        if getattr(found, key) != getattr(exact, key):
            yield f"{key}: {getattr(found, key)}, not {getattr(exact, key)}"
    tables, expected = ({name: one.rows(name) for name in one.tables} for one in (found, exact))
    yield from differences(tables, expected, RELATIVE_ERROR)


@needs.any_database
def test_an_audit_by_roll_ups_finds_what_spark_finds_by_all_rows(
    spark: SparkSession, database_url: URL, target: str
) -> None:
    """Random history of some days, archived, live, and in both places."""
    first = [*days_of_history(1, 400), *days_of_history(2, 300, first_id=701, day=1)]
    write_rows(database_url, first)
    archive_history(spark, database_url, target)
    live = days_of_history(3, 300, first_id=1_205, day=2)
    copies = [dict(row) for row in first[:40]]
    copies[7]["error_count"] += 1
    linked = [ended(1_600, origin_id=1_210), ended(1_601, "REAPED", origin_id=3)]
    write_rows(database_url, [*live, *copies, *linked])
    write_rows(database_url, [ended(1_602, "AVAILABLE"), ended(9, "AVAILABLE")], MAIN)

    # A part of a day, a whole one, and a part of the next.
    period = Period(datetime(2026, 2, 27, 23, tzinfo=UTC), datetime(2026, 3, 1, 7, 30, tzinfo=UTC))
    given: dict[str, Any] = {"url": database_url, "archive": target, "period": period}
    exact = audit(spark, tables=[MAIN], **given)
    assert set(exact.faults.values()) != {0}
    assert list(unlike(rolled_audit(tables=[MAIN], **given), exact)) == []
    # By what the first has kept.
    assert list(unlike(rolled_audit(tables=[MAIN], **given), exact)) == []


def test_the_history_of_each_database_has_the_figures_that_plain_python_finds(
    database_url: URL,
) -> None:
    rows = random_history(4, 300)
    write_rows(database_url, rows)
    write_rows(database_url, [ended(301, "AVAILABLE"), ended(305, "AVAILABLE")], MAIN)
    found = rolled_audit(url=database_url)
    told = {
        (row["grouping"], tuple(row[key] for key in KEYS)): row for row in found.rows("statistics")
    }
    exact = oracle.statistics(rows, MAIN)
    assert told.keys() == exact.keys()
    counted = {
        str(group): [{key: told[group][key] for key in figures}] for group, figures in exact.items()
    }
    expected = {str(group): [figures] for group, figures in exact.items()}
    assert list(differences(counted, expected, RELATIVE_ERROR)) == []
    assert found.audited[0] == TableAudit(MAIN, 2, 300, None, 1, 305, 3, 1)
    assert found.rows("gaps") == [
        {"table_name": MAIN, "first_id": 302, "last_id": 304, "missing": 3}
    ]


@pytest.fixture
def archived(spark: SparkSession, database_url: URL, target: str) -> Path:
    """The folder of an archive of four days, in files of two runs."""
    for seed in (1, 2):
        write_rows(database_url, days_of_history(seed, 200, first_id=seed * 1_000, day=seed))
        archive_history(spark, database_url, target)
    return Path(target) / MAIN


@needs.any_database
def test_a_day_is_read_once(
    spark: SparkSession, database_url: URL, target: str, archived: Path
) -> None:
    before = rolled_audit(archive=target)
    days = sorted(path.name[:10] for path in (archived / "rollups").iterdir())
    assert days == sorted({path.name[-10:] for path in (archived / "data").glob("*/event_date=*")})
    write_rows(database_url, days_of_history(5, 50, first_id=5_000, day=9))
    archive_history(spark, database_url, target)
    old = [
        path for path in (archived / "data").rglob("*.parquet") if path.parent.name[-10:] in days
    ]
    for path in old:
        path.unlink()
    after = rolled_audit(archive=target)
    assert after.audited[0].archived == 450
    assert len(list((archived / "rollups").iterdir())) > len(days)
    assert before.audited[0].archived == 400


@needs.any_database
def test_a_roll_up_that_does_not_fit_the_files_is_made_anew(
    spark: SparkSession, database_url: URL, target: str, archived: Path
) -> None:
    before = rolled_audit(archive=target)
    first, second, third, *_ = kept = sorted((archived / "rollups").iterdir())
    before_that = {path: written(path) for path in kept}
    # Of another day, torn, and not there.
    shutil.copy(second, first)
    second.write_bytes(second.read_bytes()[:-100])
    third.unlink()
    assert list(unlike(rolled_audit(archive=target), before)) == []
    anew = {path: written(path) for path in kept}
    assert {path for path in kept if anew[path] != before_that[path]} == {first, second, third}
    compact_archive(spark, target, database=database_url)
    assert list(unlike(rolled_audit(archive=target), before)) == []
    assert len(list((archived / "rollups").iterdir())) > len(kept)


def written(kept: Path) -> int:
    """When a roll-up was written."""
    return kept.stat().st_mtime_ns


@needs.any_database
def test_a_damaged_file_is_told_and_makes_no_roll_up(target: str, archived: Path) -> None:
    path = next((archived / "data").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ArchiveDamagedError, match=path.name):
        rolled_audit(archive=target)
    assert not list((archived / "rollups").glob(f"{path.parent.name[-10:]}*"))


@needs.any_database
def test_where_no_roll_up_can_be_kept_the_figures_are_the_same(
    target: str, archived: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (archived / "rollups").write_text("not a folder")
    found = rolled_audit(archive=target)
    assert "rollup_not_kept" in caplog.text
    (archived / "rollups").unlink()
    assert list(unlike(found, rolled_audit(archive=target))) == []


Moving = Callable[[], object]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Moving], None]:
    """Does something once, after the main table was read and before its history."""

    def arrange(move: Moving) -> None:
        moves = [move]

        def moving(database: Any, table: Any, *arguments: Any, **options: Any) -> Any:
            if table.name == f"{MAIN}_history" and moves:
                moves.pop()()
            return pages(database, table, *arguments, **options)

        monkeypatch.setattr(rolled_tables, "pages", moving)

    return arrange


@needs.any_database
def test_what_is_archived_while_history_is_read_is_counted_once(
    spark: SparkSession,
    database_url: URL,
    target: str,
    archived: Path,
    meanwhile: Callable[[Moving], None],
) -> None:
    write_rows(database_url, [ended(number) for number in range(7_001, 7_051)])

    meanwhile(lambda: archive_history(spark, database_url, target))
    found = rolled_audit(url=database_url, archive=target, tables=[MAIN])
    [total] = [row for row in found.rows("statistics") if row["grouping"] == "total"]
    assert sum(total[name] for name in ("processed", "failed", "removed", "reaped")) == 450
    assert found.audited[0].archived == 450
    assert found.faults["ended_twice"] == found.faults["differs"] == 0


def test_a_history_without_rows_has_tables_without_rows(database_url: URL) -> None:
    found = rolled_audit(url=database_url)
    assert all(isinstance(table, pa.Table) for table in found.tables.values())
    assert {name for name, table in found.tables.items() if table.num_rows} == {"tables"}

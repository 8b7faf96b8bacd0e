"""Audits of real databases and archives, and the command that reports on them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL, delete

from history_pipeline import Audit, archive_history, audit, read_history
from history_pipeline.audits import snapshot
from history_pipeline.audits.figures import Fault, TableAudit
from history_pipeline.jobs import report as report_job
from history_pipeline.reports.page import render
from history_pipeline.reports.verdict import Standing, verdict
from history_pipeline.rollups.sketch import RELATIVE_ERROR
from queue_core.errors import SchemaMissingError
from sql.capabilities import Capabilities
from sql.database import Database
from sql.tables import entry_tables
from stickybus.cli import main
from tests import requirements as needs
from tests.pipeline import oracle
from tests.pipeline.sample import ended, sample_history, write_rows

MAIN = "bus_events"
COUNTS = ("processed", "failed", "removed", "reaped", "ok", "retried", "retries")
NO_FAULTS = {"no_end": 0, "ended_twice": 0, "ended_and_live": 0}
SAMPLE = len(sample_history())


def total(found: Audit) -> dict[str, Any]:
    """The figures of all entries, without the keys that are None for them."""
    [row] = [row for row in found.rows("statistics") if row["grouping"] == "total"]
    return {
        name: value
        for name, value in row.items()
        if name not in {"grouping", *("table_name", "queue_name", "class_name", "node", "hour")}
    }


def test_the_history_of_each_database_has_the_figures_that_plain_python_finds(
    spark: SparkSession, history_url: URL, database_name: str, capabilities: Capabilities
) -> None:
    write_rows(history_url, [ended(41, "AVAILABLE"), ended(43, "AVAILABLE")], MAIN)
    told: list[tuple[str, int, int]] = []

    found = audit(spark, url=history_url, progress=lambda *step: told.append(step))

    assert total(found) == oracle.figures(sample_history())
    assert found.audited == (
        TableAudit(MAIN, 2, SAMPLE, None, 1, 43, 3, 2),
        TableAudit("notifications", 0, 0, None, None, None, 0, 0),
    )
    assert found.rows("gaps") == [
        {"table_name": MAIN, "first_id": 12, "last_id": 13, "missing": 2},
        {"table_name": MAIN, "first_id": 42, "last_id": 42, "missing": 1},
    ]
    assert found.faults == NO_FAULTS
    assert found.database == database_name
    assert verdict(found).standing is (
        Standing.UNKNOWN if capabilities.gapless_ids else Standing.COMPLETE
    )
    assert told[0] == ("reading tables", 0, 2)
    assert told[-1] == ("counting", 8, 8)
    assert "svg" in render(found)


@needs.any_database
def test_a_history_that_moves_to_an_archive_keeps_its_figures(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    archive_history(spark, history_url, target)
    later = [ended(50), ended(51, "FAILED", error_count=2)]
    write_rows(history_url, later)
    # As between the publication of a manifest and the deletion.
    write_rows(history_url, [row for row in sample_history() if row["record_id"] < 5])

    both = audit(spark, url=history_url, archive=target, tables=[MAIN])

    assert total(both) == oracle.figures([*sample_history(), *later])
    assert both.audited == (TableAudit(MAIN, 0, 6, SAMPLE, 1, 51, 11, 2),)
    assert both.faults == NO_FAULTS | {"differs": 0}


@needs.any_database
def test_ids_are_known_too_when_all_of_them_are_archived(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    archive_history(spark, history_url, target)
    found = audit(spark, url=history_url, archive=target, tables=[MAIN])
    assert found.audited == (TableAudit(MAIN, 0, 0, SAMPLE, 1, 40, 2, 1),)
    assert verdict(found).standing is Standing.UNKNOWN


@needs.any_database
def test_an_archive_alone_has_figures_and_can_not_tell_what_has_no_end(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    archive_history(spark, history_url, target)
    found = audit(spark, archive=target)
    assert total(found) == oracle.figures(sample_history())
    assert found.audited == (TableAudit(MAIN, None, None, SAMPLE, 1, 40, 2, 1),)
    assert found.faults == {"ended_twice": 0}
    assert verdict(found).standing is Standing.UNKNOWN


@needs.any_database
def test_every_kind_of_fault_is_found_and_counted(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    archive_history(spark, history_url, target)
    faulty = [
        ended(1, error_count=1),
        ended(60, "REAPED"),
        ended(61, origin_id=25),
        ended(62),
    ]
    write_rows(history_url, faulty)
    write_rows(history_url, [ended(62, "IN_PROCESSING")], MAIN)
    found = audit(spark, url=history_url, archive=target, tables=[MAIN])
    assert found.faults == {"no_end": 1, "ended_twice": 1, "ended_and_live": 1, "differs": 1}
    assert found.rows("faults") == [
        {"table_name": MAIN, "record_id": 1, "fault": Fault.DIFFERS},
        {"table_name": MAIN, "record_id": 62, "fault": Fault.ENDED_AND_LIVE},
        {"table_name": MAIN, "record_id": 25, "fault": Fault.ENDED_TWICE},
        {"table_name": MAIN, "record_id": 60, "fault": Fault.NO_END},
    ]
    assert verdict(found).standing is Standing.FAULTY


def test_entries_that_move_while_they_are_read_are_no_faults(
    spark: SparkSession, history_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the main table was read, one entry ends, and one is reaped."""
    write_rows(history_url, [ended(60, "IN_PROCESSING"), ended(61, "IN_PROCESSING")], MAIN)

    def moving(spark: SparkSession, url: URL, table: str, **options: Any) -> Any:
        if table == f"{MAIN}_history":
            database, live = Database(url), entry_tables(MAIN).main
            database.write(lambda connection: connection.execute(delete(live)))
            database.close()
            write_rows(url, [ended(60), ended(61, "REAPED")])
            write_rows(url, [ended(62, "AVAILABLE", origin_id=61)], MAIN)
        return read_history(spark, url, table, **options)

    monkeypatch.setattr(snapshot, "read_history", moving)
    found = audit(spark, url=history_url, tables=[MAIN])
    assert found.faults == NO_FAULTS
    assert total(found)["processed"] == total_processed() + 1


def total_processed() -> int:
    return sum(row["processing_state"] == "PROCESSED" for row in sample_history())


# -- the command ---------------------------------------------------------------------------------

Run = Callable[..., str]


@pytest.fixture
def run(
    database_url: URL, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """Run `stickybus report` on the test's database in this process. Returns its output."""
    monkeypatch.setenv("STICKYBUS_URL", database_url.render_as_string(hide_password=False))
    root = logging.getLogger()
    level = root.level

    def run(*arguments: str, expect: int = 0) -> str:
        code = main(["report", *arguments])
        out, err = capsys.readouterr()
        assert code == expect, out + err
        return err if expect > 1 else out

    yield run
    root.setLevel(level)


@needs.any_database
def test_an_empty_history_is_reported_with_exit_code_0(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert "Nothing has been posted yet." in run("--to", str(page))
    assert "Nothing has been posted yet." in page.read_text(encoding="utf-8")


@needs.any_database
def test_only_what_ended_in_a_period_is_counted_and_the_page_names_it(
    run: Run, history_url: URL, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    period = ("--since", "2026-03-02T00:00:03Z", "--until", "2026-03-02T00:00:10Z")
    told = json.loads(run("--to", str(page), *period, "--json"))
    [total] = [row for row in told["statistics"] if row["grouping"] == "total"]
    since, until = (datetime.fromisoformat(text) for text in period[1::2])
    chosen = [row for row in sample_history() if since <= row["finished_date"] < until]
    expected = oracle.figures(chosen)
    assert 0 < len(chosen) < SAMPLE
    assert {name: total[name] for name in COUNTS} == {name: expected[name] for name in COUNTS}
    assert (told["since"], told["until"]) == (since.isoformat(), until.isoformat())
    assert told["percentile_error"] == RELATIVE_ERROR
    seen = page.read_text(encoding="utf-8")
    assert "entries that ended from 2026-03-02 00:00:03 before 2026-03-02 00:00:10 UTC" in seen
    assert "percentiles within 0.5 % of the exact ones" in seen
    # Completeness is judged by all of them.
    assert told["tables"][0]["history"] == SAMPLE


@needs.any_database
def test_exact_percentiles_are_told_on_request(
    run: Run, spark: SparkSession, history_url: URL
) -> None:
    told = json.loads(run("--exact", "--table", MAIN, "--since", "2026-01-01T00:00:00Z", "--json"))
    [total] = [row for row in told["statistics"] if row["grouping"] == "total"]
    assert total["handler_p99"] == oracle.figures(sample_history())["handler_p99"]
    assert told["percentile_error"] == 0


@needs.any_database
def test_page_figures_and_json_come_of_one_run_and_a_fault_makes_the_exit_code_1(
    run: Run, database_url: URL, tmp_path: Path
) -> None:
    write_rows(database_url, [ended(1, "REAPED", queue_name="<script>")])
    page, figures = tmp_path / "report.html", tmp_path / "figures"
    told = json.loads(
        run("--to", str(page), "--figures", str(figures), "--table", MAIN, "--json", expect=1)
    )
    assert told["standing"] == "faulty"
    assert told["faults_found"]["no_end"] == 1
    assert told["faults"] == [{"table_name": MAIN, "record_id": 1, "fault": "no_end"}]
    assert json.loads((figures / "figures.json").read_text(encoding="utf-8")) == told
    assert "1 chain has no end" in page.read_text(encoding="utf-8")
    assert "<script" not in page.read_text(encoding="utf-8")


@needs.any_database
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), (2, "nowhere to write")),
        (("--to", "no/such/report.html"), (2, "there is no directory no/such")),
        (("--to", "."), (2, "it is a directory")),
        (("--figures", __file__), (2, "it is no directory")),
        (("--to", "x.html", "--since", "1d", "--until", "2d"), (2, "is not after --since 1d")),
        (("--to", "x.html", "--since", "soon"), (2, "'soon'")),
        (("--to", "x.html", "--url", ""), (2, "no database")),
        (("--to", "x.html", "--url", "sqlite:///no/such.db"), (3, "there is no SQLite database")),
        (("--to", "x.html", "--table", "nope"), (3, "lacks the table 'nope'")),
    ],
)
def test_what_can_not_work_is_told_before_anything_is_read(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: tuple[int, str]
) -> None:
    monkeypatch.setattr(
        "history_pipeline.rollups.rolled_audit.read_table",
        lambda *_, **__: pytest.fail("history was read"),
    )
    code, told = expected
    assert told in run(*arguments, expect=code)
    assert not Path("x.html").exists()


@needs.any_database
def test_a_table_that_is_nowhere_is_told(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    archive_history(spark, history_url, target)
    with pytest.raises(
        SchemaMissingError, match=r"the table 'nope': there are bus_events, notifications"
    ):
        audit(spark, url=history_url, archive=target, tables=["nope"])


@needs.any_database
def test_the_job_for_a_cluster_writes_the_page_and_tells_the_verdict(
    spark: SparkSession, history_url: URL, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = history_url.render_as_string(hide_password=False)
    report_job.main(
        [
            "--url",
            url,
            "--table",
            MAIN,
            "--to",
            str(tmp_path / "report.html"),
            "--figures",
            str(tmp_path),
        ]
    )
    assert json.loads(capsys.readouterr().out)["standing"] == "unknown"
    assert {"report.html", "figures.json", "statistics.parquet"} <= {
        path.name for path in tmp_path.iterdir()
    }

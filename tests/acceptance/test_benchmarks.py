"""The benchmarks, once at a tiny size on servers of their own: what is measured later must run today."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import URL, delete

from benchmarks.measurement import Measurement, percentile
from benchmarks.report import markdown
from benchmarks.scenarios import SCENARIOS
from benchmarks.workload import Run, VerificationError

ROOT = Path(__file__).parents[2]


def _benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.timeout(110)
def test_each_scenario_runs_on_each_database_and_reports_what_it_measured(tmp_path: Path) -> None:
    results = tmp_path / "results.json"

    ended = _benchmarks("--scale", "0.002", "--rounds", "1", "--json", str(results))

    assert ended.returncode == 0, ended.stderr
    measured = json.loads(results.read_text())
    pairs = {(measurement["scenario"], measurement["database"]) for measurement in measured}
    assert pairs == {
        (name, database) for name in SCENARIOS for database in ("sqlite", "postgresql", "mariadb")
    }
    assert all(measurement["value"] >= 0 and measurement["unit"] for measurement in measured)
    servers = {measurement["database"]: measurement["environment"]["server"] for measurement in measured}
    # Every figure is one of commits that survive a power cut.
    assert servers["sqlite"]["synchronous"] == "2"
    assert (servers["postgresql"]["fsync"], servers["postgresql"]["synchronous_commit"]) == ("on", "on")
    assert servers["mariadb"]["innodb_flush_log_at_trx_commit"] == "1"
    table = [line for line in ended.stdout.splitlines() if line.startswith("|")]
    assert table[0] == "| scenario | metric | sqlite | postgresql | mariadb |"
    assert len(table) == 2 + len({(found["scenario"], found["metric"]) for found in measured})


def test_an_unknown_scenario_is_refused_with_those_that_exist() -> None:
    ended = _benchmarks("drian")

    assert ended.returncode == 2
    assert "drian" in ended.stderr
    assert "claim-batch" in ended.stderr


def test_a_lost_entry_fails_the_scenario_instead_of_being_measured(tmp_path: Path) -> None:
    run = Run(URL.create("sqlite", database=str(tmp_path / "bench.db")))
    run.load(3)
    run.start()
    run.wait()
    past = run.bus.engine.store.statements.past
    run.bus.engine.database.write(
        lambda connection: connection.execute(delete(past).where(past.c.record_id == run.posted[0]))
    )

    with pytest.raises(VerificationError, match="posted 3"):
        run.verify()
    run.bus.close()


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(number) for number in range(100, 0, -1)]

    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([7.0], 0.99) == 7


def test_the_table_has_a_column_for_each_database_and_gaps_where_nothing_was_measured() -> None:
    table = markdown(
        [
            Measurement("drain", "sqlite", "drain rate", 12_345.6, "entries/s"),
            Measurement("drain", "mariadb", "drain rate", 0.5, "entries/s"),
            Measurement("post", "mariadb", "post rate", 99.5, "entries/s"),
        ]
    )

    assert table.splitlines() == [
        "| scenario | metric | sqlite | mariadb |",
        "|---|---|---:|---:|",
        "| drain | drain rate | 12,346 entries/s | 0.50 entries/s |",
        "| post | post rate |  | 99.50 entries/s |",
    ]

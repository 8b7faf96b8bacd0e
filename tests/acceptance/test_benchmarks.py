"""The benchmarks, once at a tiny size, on servers that they start."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from sqlalchemy import URL, delete

import benchmarks.__main__
from benchmarks.databases import NAMES, Target
from benchmarks.measurement import Measurement, percentile
from benchmarks.peers import PEERS
from benchmarks.report import markdown
from benchmarks.scenarios import SCENARIOS
from benchmarks.workload import (
    Run,
    Sizes,
    VerificationError,
    alternating,
    median_ratio,
    verify_counts,
)
from tests.contract.harness import engine_of

ROOT = Path(__file__).parents[2]


LONGEST_SECONDS = 500


def _benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
    )


# What each server says when commits survive a power cut.
DURABLE = {
    "sqlite": {"synchronous": "2"},
    "postgresql": {"fsync": "on", "synchronous_commit": "on"},
    "mariadb": {"innodb_flush_log_at_trx_commit": "1"},
    "mysql": {"innodb_flush_log_at_trx_commit": "1"},
}


SPARK = [name for name in SCENARIOS if name.startswith("spark-")]
# Other libraries run on some databases.
ONLY_ON = {"peers": tuple(PEERS), "latency-peers": ("postgresql",)}
# What runs on each database; and in one session of Spark, on a file and on a server.
RUNS = [
    (
        [name for name in SCENARIOS if name not in SPARK and database in ONLY_ON.get(name, NAMES)],
        [database],
    )
    for database in NAMES
]
RUNS.append((SPARK, ["sqlite", "postgresql"]))
ON_MYSQL = pytest.param(["floor", "post", "drain", "latency"], ["mysql"], marks=pytest.mark.mysql)


@pytest.mark.timeout(LONGEST_SECONDS + 10)
@pytest.mark.parametrize(
    ("scenarios", "databases"), [*RUNS, ON_MYSQL], ids=[*NAMES, "spark", "mysql"]
)
def test_each_scenario_runs_and_reports_what_it_measured(
    scenarios: list[str], databases: list[str], tmp_path: Path
) -> None:
    results = tmp_path / "results.json"
    small = ("--trial", "--json", str(results), "--output", str(tmp_path))
    chosen = [argument for database in databases for argument in ("--database", database)]

    ended = _benchmarks(*scenarios, *chosen, *small)

    assert ended.returncode == 0, ended.stderr
    measured = json.loads(results.read_text())
    assert {measurement["database"] for measurement in measured} == set(databases)
    assert {measurement["scenario"] for measurement in measured} == set(scenarios)
    assert all(measurement["unit"] for measurement in measured)
    if "peers" in scenarios:
        beside = {
            measurement["metric"] for measurement in measured if measurement["scenario"] == "peers"
        }
        for peer in PEERS[databases[0]]:
            assert (f"drain, {peer.package}" in beside) == peer.installed
    rates = [measurement for measurement in measured if measurement["unit"] == "entries/s"]
    assert all(
        measurement["value"] > 0 and measurement["ratio_to_floor"] > 0 for measurement in rates
    )
    for measurement in measured:
        assert (
            DURABLE[measurement["database"]].items() <= measurement["environment"]["server"].items()
        )
        assert measurement["environment"]["cpu"]
    table = [line for line in ended.stdout.splitlines() if line.startswith("|")]
    assert table[0] == f"| scenario | metric | {' | '.join(databases)} | size |"
    assert len(table) == 2 + len({(one["scenario"], one["metric"]) for one in measured})
    drawn = [path.stem for path in tmp_path.glob("*.png")]
    assert all(any(name.endswith(scenario) for name in drawn) for scenario in scenarios)


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
    past = engine_of(run.bus).store.statements.past
    engine_of(run.bus).database.write(
        lambda connection: connection.execute(delete(past).where(past.c.record_id == run.posted[0]))
    )

    with pytest.raises(VerificationError, match="posted 3"):
        run.verify()
    run.bus.close()


@pytest.mark.parametrize(
    "error", [VerificationError("an entry is lost"), OSError("no route to it")]
)
def test_a_scenario_that_fails_fails_the_run_and_what_others_measured_is_kept(
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def failing(_target: Target, _sizes: Sizes) -> Iterator[Measurement]:
        raise error

    def working(target: Target, _sizes: Sizes) -> Iterator[Measurement]:
        yield Measurement("working", target.name, "rate", 1.0, "entries/s", {})

    monkeypatch.setattr(benchmarks.__main__, "SCENARIOS", {"failing": failing, "working": working})
    results = tmp_path / "results.json"

    with pytest.raises(typer.Exit) as ended:
        benchmarks.__main__.main(["failing", "working"], database=["sqlite"], json=results)

    assert ended.value.exit_code == 1
    assert [measured["scenario"] for measured in json.loads(results.read_text())] == ["working"]
    assert f"{type(error).__name__}: {error}" in capfd.readouterr().err


def test_a_run_that_breaks_off_leaves_what_it_had_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_off(_target: Target, _sizes: Sizes) -> Iterator[Measurement]:
        raise KeyboardInterrupt

    def working(target: Target, _sizes: Sizes) -> Iterator[Measurement]:
        yield Measurement("working", target.name, "rate", 1.0, "entries/s", {})

    monkeypatch.setattr(
        benchmarks.__main__, "SCENARIOS", {"working": working, "broken": broken_off}
    )

    with pytest.raises(KeyboardInterrupt):
        benchmarks.__main__.main(["working", "broken"], database=["sqlite"], output=tmp_path)

    (results,), (table,) = tmp_path.glob("*.json"), tmp_path.glob("*.md")
    assert [measured["scenario"] for measured in json.loads(results.read_text())] == ["working"]
    assert "| working | rate | 1.00 entries/s |" in table.read_text()


def test_tables_that_hold_more_or_less_than_was_done_fail_a_scenario_that_only_counts(
    tmp_path: Path,
) -> None:
    url = URL.create("sqlite", database=str(tmp_path / "bench.db"))
    run = Run(url)
    run.load(3)
    run.start()
    run.wait()
    run.verify()
    run.bus.close()

    verify_counts(url, "bus_events", waiting=0, ended=3)
    with pytest.raises(VerificationError, match="expected are 0 waiting and 4 ended"):
        verify_counts(url, "bus_events", waiting=0, ended=4)
    with pytest.raises(VerificationError, match="expected are 1 waiting"):
        verify_counts(url, "bus_events", waiting=1, ended=3)


def test_works_alternate_so_that_a_drift_favours_nobody() -> None:
    calls: list[str] = []
    works = {"first": lambda: calls.append("first"), "second": lambda: calls.append("second")}

    alternating(3, works)

    assert calls == ["first", "second", "second", "first", "first", "second"]


def test_a_ratio_is_the_median_of_those_within_rounds() -> None:
    assert median_ratio([10.0, 30.0, 8.0], [20.0, 40.0, 10.0]) == 0.75


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(number) for number in range(100, 0, -1)]

    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([7.0], 0.99) == 7


def test_the_table_has_a_column_for_each_database_and_gaps_where_nothing_was_measured() -> None:
    table = markdown(
        [
            Measurement(
                "drain",
                "sqlite",
                "drain rate",
                12_345.6,
                "entries/s",
                {"entries": 2_000, "rounds": 6, "mode": "?"},
            ),
            Measurement(
                "drain", "mariadb", "drain rate", 0.5, "entries/s", {"entries": 2_000, "rounds": 6}
            ),
            Measurement("post", "mariadb", "post rate", 99.5, "entries/s"),
        ]
    )

    assert table.splitlines() == [
        "| scenario | metric | sqlite | mariadb | size |",
        "|---|---|---:|---:|---|",
        "| drain | drain rate | 12,346 entries/s | 0.50 entries/s | 2,000 entries, 6 rounds |",
        "| post | post rate |  | 99.50 entries/s |  |",
    ]

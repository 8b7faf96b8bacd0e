"""Statistics in SQL: entries by state, retries and processing times, by age and queue."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from statistics import fmean, quantiles
from typing import Any

import pytest
from sqlalchemy import URL, Engine, insert, update

from queue_core.face.statistics import StatsOptions
from sql.statements.statistics import Span
from sql.tables import entry_tables
from stickybus import (
    ConfigurationError,
    Inspector,
    InvalidPostError,
    NaiveDateTimeError,
    PersistentBus,
    State,
)
from stickybus.cli import main
from tests.contract.conftest import MakeService
from tests.contract.harness import engine_of
from tests.contract.plans.caught import catching

TABLES = entry_tables("bus_events")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def write(engine: Engine, *rows: dict[str, Any]) -> None:
    """Rows of history that ended, unless they say otherwise, at NOW after a run of no time."""
    with engine.begin() as connection:
        for record_id, row in enumerate(rows, start=1):
            ended = row.pop("finished_date", NOW)
            took = row.pop("micros", 0)
            values = {
                "record_id": record_id,
                "class_name": "Order",
                "processing_state": "PROCESSED",
                "finished_date": ended,
                "started_date": None if took is None else ended - timedelta(microseconds=took),
            }
            connection.execute(insert(TABLES.history).values(values | row))


def test_entries_are_counted_by_state_live_ones_and_ended_ones(
    inspector: Inspector, engine: Engine, bus: PersistentBus
) -> None:
    held, _, *_ = [bus.post({}, event_name="Order", order_key=key) for key in "aabbb"]
    with engine.begin() as connection:
        is_held = TABLES.main.c.record_id == held
        connection.execute(
            update(TABLES.main).where(is_held).values(processing_state="IN_PROCESSING")
        )
    ends = {"PROCESSED": 4, "FAILED": 5, "REMOVED": 6, "REAPED": 7}
    write(engine, *({"processing_state": state} for state in ends for _ in range(ends[state])))

    [found] = inspector.queue_stats(age=None)

    assert (found.table, found.queue_name) == ("bus_events", "bus")
    assert {state: getattr(found, state.lower()) for state in State} == {
        "AVAILABLE": 1,
        "WAITING": 3,
        "IN_PROCESSING": 1,
        **ends,
    }


def test_retries_are_the_runs_after_a_failed_one(inspector: Inspector, engine: Engine) -> None:
    write(
        engine,
        *({"error_count": 0} for _ in range(4)),
        {"error_count": 2},
        {"processing_state": "FAILED", "error_count": 4},
        {"processing_state": "FAILED", "error_count": 0},
        {"processing_state": "REAPED", "error_count": 9},
        {"queue_name": "other", "processing_state": "FAILED", "error_count": 2},
    )

    first, other = inspector.retry_stats(age=None)

    assert (first.ok, first.retries, first.percentage) == (4, 5, 125.0)
    assert (other.ok, other.retries, other.percentage) == (0, 1, None)


@pytest.mark.parametrize("values", [[7], [3, 5], [-2_000_000, 0, 1, 2, 61_000_000], [5] * 9])
def test_percentiles_of_few_values_are_exact(
    inspector: Inspector, engine: Engine, values: list[int]
) -> None:
    write(engine, *({"micros": value} for value in values), {"micros": None})
    _agrees(inspector, values)


def test_percentiles_of_many_values_are_exact(inspector: Inspector, engine: Engine) -> None:
    values = [(place * 7_919) ** 2 % 90_000_019 for place in range(1_500)]
    write(engine, *({"micros": value} for value in values))
    _agrees(inspector, values)


def _agrees(inspector: Inspector, values: list[int]) -> None:
    [found] = inspector.processing_time_stats(age=None, unit=timedelta(microseconds=1))
    cuts = quantiles(values, n=100, method="inclusive") if len(values) > 1 else values * 99
    assert (found.count, found.min, found.max) == (len(values), min(values), max(values))
    assert found.avg == pytest.approx(fmean(values))
    expected = [cuts[49], cuts[89], cuts[94], cuts[98]]
    assert [found.p50, found.p90, found.p95, found.p99] == pytest.approx(expected)


def test_age_queue_unit_and_now_choose_what_counts(inspector: Inspector, engine: Engine) -> None:
    day, second = timedelta(days=1), 1_000_000
    write(
        engine,
        {"micros": second, "finished_date": NOW - 30 * day},
        {"micros": 2 * second, "finished_date": NOW - 31 * day},
        {"micros": 3 * second, "finished_date": NOW},
        {"micros": 4 * second, "finished_date": NOW + day},
        {"micros": 5 * second, "queue_name": "other"},
    )

    def counted(**wanted: Any) -> list[tuple[str, int, float]]:
        found = inspector.processing_time_stats(**wanted)
        return [(one.queue_name, one.count, one.max) for one in found]

    assert counted(now=NOW) == [("bus", 2, 3.0), ("other", 1, 5.0)]
    assert counted(now=NOW, age=None, queue_name="bus") == [("bus", 3, 3.0)]
    assert counted(age=None, queue_name="bus") == [("bus", 4, 4.0)]
    assert counted(now=NOW, unit=timedelta(milliseconds=1), queue_name="other") == [
        ("other", 1, 5_000.0)
    ]
    assert [one.ok for one in inspector.retry_stats(now=NOW, age=timedelta(0))] == [1, 1]
    assert [one.processed for one in inspector.queue_stats(now=NOW, age=31 * day)] == [3, 1]
    assert counted(now=NOW, queue_name="none") == []
    assert counted(now=NOW, age=timedelta.max, queue_name="bus") == [("bus", 3, 3.0)]


def test_statistics_of_a_short_age_read_history_by_its_dates(
    bus: PersistentBus, engine: Engine, inspector: Inspector
) -> None:
    dates = (NOW - timedelta(hours=hours) for hours in range(3_000))
    write(engine, *({"finished_date": date} for date in dates))
    span = Span(since=NOW - timedelta(hours=2), until=NOW)
    statements = engine_of(bus).store.statements
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":  # else it reads so small a table whole
            connection.exec_driver_sql("SET enable_seqscan = off")
        with catching(connection) as caught:
            assert statements.retry_counts(connection, span)
            assert statements.processing_times(connection, span, range)["bus"].count == 3
        assert len(caught) == (2 if engine.dialect.name == "sqlite" else 3)
        explain = "EXPLAIN QUERY PLAN " if engine.dialect.name == "sqlite" else "EXPLAIN "
        for one in caught:
            rows = connection.exec_driver_sql(explain + one.text, one.parameters)
            plan = "\n".join(str(value) for row in rows for value in row)
            # PostgreSQL's index of blocks is no gain here: it takes the primary key, by the date.
            by_date = "bus_events_history_finished" in plan or "Index Cond: ((finished_date" in plan
            assert by_date, plan


def test_the_command_writes_a_table_or_json(
    database_url: URL, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    write(engine, {"micros": 1_500, "error_count": 1}, {"micros": 2_500}, {"micros": 3_500})
    options = ["--url", database_url.render_as_string(hide_password=False), "--age", "all"]

    def told(*command: str) -> str:
        assert main(["stats", *command, *options]) == 0
        return capsys.readouterr().out

    [times] = json.loads(told("times", "--unit", "1ms", "--json"))
    assert (times["queue_name"], times["count"], times["p50"], times["max"]) == (
        "bus",
        3,
        2.5,
        3.5,
    )
    assert "2.500" in told("times", "--unit", "1ms")
    [retries] = json.loads(told("retries", "--json"))
    assert (retries["ok"], retries["retries"], retries["percentage"]) == (2, 1, 50.0)
    [counts] = json.loads(told("queues", "--queue", "bus", "--json"))
    assert counts["processed"] == 3
    assert "PROCESSED" in told("queues")
    assert main(["stats", "times", *options[:2], "--age", "soon"]) == 2


def test_what_can_not_be_meant_is_refused(inspector: Inspector) -> None:
    with pytest.raises(ConfigurationError, match="age"):
        inspector.queue_stats(age=timedelta(seconds=-1))
    with pytest.raises(ConfigurationError, match="unit"):
        inspector.processing_time_stats(unit=timedelta(0))
    with pytest.raises(ConfigurationError, match="unit"):
        inspector.processing_time_stats(unit=1)  # type: ignore[arg-type]
    with pytest.raises(NaiveDateTimeError):
        inspector.retry_stats(now=datetime(2026, 1, 1))  # noqa: DTZ001 -- the fault
    with pytest.raises(InvalidPostError):
        inspector.retry_stats(queue_name="")


def test_a_bus_and_a_service_tell_those_of_their_table(
    inspector: Inspector, engine: Engine, bus: PersistentBus, make_service: MakeService
) -> None:
    service = make_service()
    write(engine, {"micros": 1_000}, {"queue_name": "other", "error_count": 2})
    unit, wanted = timedelta(milliseconds=1), StatsOptions(now=NOW, age=timedelta(days=1))

    assert bus.queue_stats(**wanted) == inspector.queue_stats(**wanted)
    assert bus.retry_stats(**wanted) == inspector.retry_stats(**wanted)
    assert bus.processing_time_stats(unit=unit, **wanted) == inspector.processing_time_stats(
        unit=unit, **wanted
    )
    assert [one.ok for one in bus.retry_stats(queue_name="bus", now=NOW)] == [1]
    assert service.queue_stats(age=None) == []

    async def twins() -> tuple[object, ...]:
        return (
            await bus.queue_stats_async(**wanted),
            await bus.retry_stats_async(**wanted),
            await bus.processing_time_stats_async(**wanted),
        )

    assert asyncio.run(twins()) == (
        bus.queue_stats(**wanted),
        bus.retry_stats(**wanted),
        bus.processing_time_stats(**wanted),
    )

"""Metrics without a database.

The tests cover families in a registry, buckets, names and their documentation.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from sqlalchemy.exc import OperationalError

from queue_core.metric_families import COUNTERS, GAUGES, HISTOGRAMS, PREFIX
from queue_core.metrics import Metrics, Reading
from queue_core.model.entry import Entry
from queue_core.model.outcome import Finished, Lost, Outcome, Parked, Recorded, Released, Retried
from queue_core.model.states import State
from queue_core.posting.poster import Post
from queue_core.reading.depths import QueueDepth
from queue_core.reading.obstacles import Obstacles

DOCS = Path(__file__).parents[2] / "docs"
DUE = datetime(2026, 1, 1, tzinfo=UTC)
NOBODY_HERE = Reading(in_flight=0, lease_left_seconds=0.0, skew_seconds=0.0)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def entry(record_id: int, queue_name: str = "bus") -> Entry:
    nothing: dict[str, Any] = dict.fromkeys(Entry.__struct_fields__)
    return Entry(
        **{
            **nothing,
            "record_id": record_id,
            "queue_name": queue_name,
            "claim_count": 1,
            "created_date": DUE,
            "effective_date": DUE,
        }
    )


def finished(record_id: int, *, waited: float = 0.0, state: State = State.PROCESSED) -> Finished:
    started = DUE + timedelta(seconds=waited)
    return Finished(
        entry=entry(record_id),
        state=state,
        started_date=started,
        finished_date=started,
        error_count=0,
        progress={},
    )


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(PREFIX + name, {"table": "bus_events", **labels})


def counted(registry: CollectorRegistry, name: str) -> float:
    return value(registry, f"{name}_total", queue_name="bus") or 0.0


def post(metrics: Metrics, queue_name: str, count: int) -> None:
    metrics.around_post(lambda _: [*range(count)], Post(queue_name, (), None))


def test_buses_and_services_of_a_process_share_the_families_of_a_registry(
    registry: CollectorRegistry,
) -> None:
    post(Metrics("bus_events", registry), "bus", 2)
    post(Metrics("notifications", registry), "billing:due", 3)
    post(Metrics("bus_events", registry), "bus", 5)

    assert counted(registry, "entries_posted") == 7
    labels = {"table": "notifications", "queue_name": "billing:due"}
    assert registry.get_sample_value("stickybus_entries_posted_total", labels) == 3


def test_registries_share_nothing(registry: CollectorRegistry) -> None:
    post(Metrics("bus_events", registry), "bus", 2)
    other = CollectorRegistry()
    Metrics("bus_events", other)

    assert counted(other, "entries_posted") == 0


def test_the_default_is_the_registry_of_prometheus_client() -> None:
    post(Metrics("only_here"), "bus", 1)

    labels = {"table": "only_here", "queue_name": "bus"}
    assert REGISTRY.get_sample_value("stickybus_entries_posted_total", labels) == 1


def test_a_batch_of_outcomes_is_counted_by_what_became_of_each(registry: CollectorRegistry) -> None:
    running = {"started_date": DUE, "progress": dict[str, bool](), "error_count": 1}
    batch: list[Outcome] = [
        finished(1),
        finished(2, state=State.FAILED),
        Recorded(entry=entry(3), state=State.PROCESSED, started_date=DUE, error_count=0),
        Retried(entry=entry(4), at=DUE, **running),  # type: ignore[arg-type]
        Lost(entry=entry(5)),
        finished(6),
        Released(entry=entry(7)),
        Parked(entry=entry(8)),
    ]

    Metrics("bus_events", registry).finished(batch, lost={6})

    found = {
        name: counted(registry, name)
        for name, (_, labels) in COUNTERS.items()
        if "queue_name" in labels
    }
    assert {name: count for name, count in found.items() if count} == {
        "entries_processed": 2,
        "entries_failed": 1,
        "entries_retried": 1,
        "claims_lost": 2,
    }
    assert value(registry, "batch_entries_sum", statement="finish") == 8


def test_an_entry_without_a_subscriber_is_processed_and_undelivered(
    registry: CollectorRegistry,
) -> None:
    nobodys = Finished(
        entry=entry(1),
        state=State.PROCESSED,
        started_date=DUE,
        finished_date=DUE,
        error_count=0,
        progress={},
        undelivered=True,
    )

    Metrics("bus_events", registry).finished([nobodys, finished(2)], lost=set())

    assert counted(registry, "entries_undelivered") == 1
    assert counted(registry, "entries_processed") == 2


def test_latencies_fall_into_cumulative_buckets(
    registry: CollectorRegistry,
) -> None:
    batch = [
        finished(1, waited=0.001),
        finished(2, waited=0.2),
        finished(3, waited=-5),
    ]

    Metrics("bus_events", registry).finished(batch, lost=set())

    def at_most(name: str, bound: str) -> float | None:
        return value(registry, f"{name}_bucket", queue_name="bus", le=bound)

    # A clock that was set back makes no negative wait; a bound counts what equals it.
    assert [
        at_most("start_latency_seconds", bound)
        for bound in ("0.0001", "0.001", "0.1", "0.3", "+Inf")
    ] == [1, 2, 2, 3, 3]
    assert value(registry, "start_latency_seconds_count", queue_name="bus") == 3
    assert value(registry, "start_latency_seconds_sum", queue_name="bus") == pytest.approx(0.201)


def test_each_call_of_a_handler_is_timed(registry: CollectorRegistry) -> None:
    metrics = Metrics("bus_events", registry)

    def fail(_: object) -> None:
        raise RuntimeError

    metrics.around_handler(lambda _: None, finished(1))
    with pytest.raises(RuntimeError):
        metrics.around_handler(fail, finished(2))

    assert value(registry, "handler_seconds_count", queue_name="bus") == 2
    assert value(registry, "handler_seconds_bucket", queue_name="bus", le="10.0") == 2


def test_a_statement_that_fails_is_not_timed(registry: CollectorRegistry) -> None:
    metrics = Metrics("bus_events", registry)
    with metrics.statement("claim"):
        pass
    with pytest.raises(RuntimeError), metrics.statement("claim"):
        raise RuntimeError

    assert value(registry, "statement_seconds_count", statement="claim") == 1


def test_a_scrape_reads_the_gauges(registry: CollectorRegistry) -> None:
    metrics = Metrics("bus_events", registry)
    depths = [
        QueueDepth(
            table="t", queue_name="bus", ready=4, oldest_age_seconds=2.5, limited=2, parked=1
        )
    ]
    obstacles = [Obstacles(queue_name="bus", held_keys=5, open_circuits=6, pauses=8)]
    metrics.watch(
        lambda: Reading(in_flight=7, lease_left_seconds=11.5, skew_seconds=-0.25),
        lambda: depths,
        lambda: obstacles,
        lambda: 3,
    )

    assert value(registry, "entries_in_flight") == 7
    assert value(registry, "node_lease_left_seconds") == 11.5
    assert value(registry, "clock_skew_seconds") == -0.25
    assert value(registry, "entries_ready", queue_name="bus") == 4
    assert value(registry, "oldest_ready_age_seconds", queue_name="bus") == 2.5
    assert value(registry, "entries_limited", queue_name="bus") == 2
    assert value(registry, "entries_parked", queue_name="bus") == 1
    assert value(registry, "order_keys_held", queue_name="bus") == 5
    assert value(registry, "circuits_open", queue_name="bus") == 6
    assert value(registry, "pauses_in_force", queue_name="bus") == 8
    assert value(registry, "groups_incomplete") == 3
    assert value(registry, "database_up") == 1


def test_a_scrape_without_the_database_shows_the_rest(registry: CollectorRegistry) -> None:
    def unreachable() -> list[QueueDepth]:
        raise OperationalError("SELECT", {}, Exception("connection refused"))

    metrics = Metrics("bus_events", registry)
    metrics.watch(lambda: NOBODY_HERE, unreachable, list, int)

    assert value(registry, "database_up") == 0
    assert value(registry, "entries_in_flight") == 0
    assert value(registry, "entries_ready", queue_name="bus") is None


def test_what_was_closed_shows_no_gauges_and_keeps_its_counters(
    registry: CollectorRegistry,
) -> None:
    metrics = Metrics("bus_events", registry)
    metrics.watch(lambda: NOBODY_HERE, list, list, int)
    post(metrics, "bus", 1)

    metrics.close()

    assert value(registry, "entries_in_flight") is None
    assert counted(registry, "entries_posted") == 1


def names_shown(registry: CollectorRegistry) -> set[str]:
    """Names of the families, as queries write them.

    Counters have `_total`, histograms their parts.
    """
    text = generate_latest(registry).decode()
    families = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    parts = {"histogram": ("_bucket", "_count", "_sum")}
    return {name + part for name, kind in families.items() for part in parts.get(kind, ("",))}


def test_the_dashboard_queries_only_metrics_that_exist(registry: CollectorRegistry) -> None:
    Metrics("bus_events", registry)
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    queries = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    queried = set(re.findall(rf"{PREFIX}\w+", " ".join(queries)))

    assert len(queried) > 15
    assert queried <= names_shown(registry)


def test_every_metric_is_in_the_reference_with_its_labels() -> None:
    page = (DOCS / "reference" / "metrics.md").read_text()
    # Those of a service are its own.
    reference, service, _ = page.partition("## Of a work queue's service")
    assert service
    documented = dict(re.findall(r"^\| `(stickybus_\w+)` \| ([^|]*) \|", reference, re.MULTILINE))

    made = {f"{PREFIX}{name}_total": labels for name, (_, labels) in COUNTERS.items()}
    made |= {PREFIX + name: labels for name, (_, labels) in GAUGES.items()}
    made |= {PREFIX + name: labels for name, (_, labels, _) in HISTOGRAMS.items()}
    assert {name: tuple(labels.split(", ")) for name, labels in documented.items()} == made

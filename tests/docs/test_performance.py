"""The tables of the pages on performance and measurements say what the results files say."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from benchmarks.databases import NAMES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "explanation" / f"{page}.md" for page in ("performance", "measurements")]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"

# Tables by the first cell of their header. By row, in its order: the scenario, the metrics, and
# which of their figures.
TABLES = {
    "per entry": [
        ("post", ["post rate"], "ratio_to_floor"),
        ("post-many", ["post_many rate"], "ratio_to_floor"),
        ("drain", ["drain rate"], "ratio_to_floor"),
        ("drain", ["drain rate"], "value"),
        ("through", ["posted and handled, to a drain"], "value"),
        ("through", ["posted and handled"], "value"),
        ("latency", [f"commit to start, {share} at 500/s" for share in ("p50", "p99")], "value"),
        (
            "latency-elsewhere",
            [f"commit to start elsewhere, {share} at 500/s" for share in ("p50", "p99")],
            "value",
        ),
        (
            "latency-elsewhere",
            [f"commit to start elsewhere, {share} at 100/s" for share in ("p50", "p99")],
            "value",
        ),
        (
            "punctuality",
            [f"start minus date, {share} at 100/s" for share in ("p50", "p99")],
            "value",
        ),
        ("memory", ["peak memory"], "value"),
    ],
    "drains": [
        ("nodes", ["2 processes to 1"], "value"),
        ("nodes", ["4 processes to 1"], "value"),
        *(
            ("claim-batch", [f"drain rate, max_entries_claimed={size}"], "ratio_to_floor")
            for size in (10, 100, 500)
        ),
    ],
    "history": [
        ("spark-read", ["partition"], "value"),
        ("spark-read", ["partition"], "ratio_to_floor"),
        ("spark-read", ["whole"], "value"),
        ("spark-archive", ["rate"], "value"),
    ],
}
PEERS = [
    ("postgresql", "pgqueuer"),
    ("postgresql", "procrastinate"),
    ("postgresql", "celery"),
    ("sqlite", "huey"),
]


@cache
def measured() -> dict[tuple[str, str, str], dict[str, float]]:
    """What the run measured that the pages link to, by (scenario, database, metric)."""
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    (name,) = set(re.findall(r"benchmarks/results/([\d-]+full)\.md", pages))
    return {
        (one["scenario"], one["database"], one["metric"]): one
        for one in json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    }


def table(first: str, *pages: Path) -> list[list[str]]:
    """Return the cells of the table whose header begins with `first`, but for its first column."""
    lines = [
        line for page in pages or PAGES for line in [*page.read_text("utf-8").splitlines(), ""]
    ]
    [header] = [number for number, line in enumerate(lines) if line.startswith(f"| {first} |")]
    end = lines.index("", header)
    return [
        [cell.strip() for cell in line.strip("|").split("|")][1:]
        for line in lines[header + 2 : end]
    ]


def says(cell: str, values: Sequence[float]) -> bool:
    """Whether the figures of a cell, without the goals, are `values`."""
    figures = re.findall(r"\d[\d,.]*", re.sub(r"\(.*\)", "", cell))
    return len(figures) == len(values) and all(map(_rounds, figures, values))


def _rounds(figure: str, value: float) -> bool:
    """Whether `value` was rounded to `figure`: to its last decimal, a rate to three digits."""
    decimals = len(figure.partition(".")[2])
    allowed = 0.5 * 10**-decimals if "," not in figure else 0.005 * value
    return abs(float(figure.replace(",", "")) - value) <= allowed + 1e-9


@pytest.mark.parametrize("name", TABLES)
def test_where_it_stands_is_what_was_measured(name: str) -> None:
    for cells, (scenario, metrics, field) in zip(table(name), TABLES[name], strict=True):
        for database, cell in zip(NAMES, cells, strict=True):
            values = [measured()[scenario, database, metric][field] for metric in metrics]
            assert says(cell, values), (scenario, database, cell, values)


def test_how_cost_grows_is_what_was_measured() -> None:
    for database, (axes, snapshot) in zip(NAMES, table("as tables grow"), strict=True):
        grown = {
            metric: one["value"]
            for (scenario, of, metric), one in measured().items()
            if (scenario, of) == ("growth", database) and metric.endswith("of the small case")
        }
        held = [grown.pop(metric) for metric in sorted(grown) if metric.startswith("held snapshot")]
        assert says(axes, [min(grown.values()), max(grown.values())]), (database, grown)
        assert says(snapshot, held), (database, held)


@pytest.mark.parametrize(("row", "work"), [(0, "bulk post"), (1, "drain")])
def test_what_others_reach_is_what_was_measured(row: int, work: str) -> None:
    for (database, peer), cell in zip(PEERS, table("times the rate of")[row], strict=True):
        times = measured()["peers", database, f"{work}, stickybus to {peer}"]["value"]
        assert says(cell, [times]), (peer, cell, times)


@pytest.mark.parametrize(("peer", "database"), [("Celery", "postgresql"), ("Huey", "sqlite")])
def test_the_readme_compares_by_what_was_measured(peer: str, database: str) -> None:
    [times] = re.findall(rf"(\d+) times the rate of {peer}", README.read_text("utf-8"))
    measured_times = measured()["peers", database, f"drain, stickybus to {peer.lower()}"]["value"]
    assert says(times, [measured_times]), (peer, times, measured_times)


def test_the_readmes_figures_are_what_was_measured() -> None:
    head = "measured on 2026-11-23, PostgreSQL 15, two cores, every commit on the disk"
    shown = [cell for [cell] in table(head, README)]
    rows = [
        ("latency", ["commit to start, p50 at 500/s", "commit to start, p99 at 500/s"], "value"),
        (
            "latency-elsewhere",
            ["commit to start elsewhere, p50 at 500/s", "commit to start elsewhere, p99 at 500/s"],
            "value",
        ),
        ("drain", ["drain rate"], "value"),
        ("drain", ["drain rate"], "ratio_to_floor"),
    ]
    for cell, (scenario, metrics, field) in zip(shown, rows, strict=False):
        values = [measured()[scenario, "postgresql", metric][field] for metric in metrics]
        assert says(cell, values), (scenario, cell, values)
    grown = [
        measured()["growth", "postgresql", f"{axis}: {work}, of the small case"]["value"]
        for axis in ("backlog of 1000k", "history rows")
        for work in ("post", "delivery")
    ]
    assert shown[-1] == "the same, within 5 %"
    assert all(0.95 <= ratio <= 1.05 for ratio in grown), grown

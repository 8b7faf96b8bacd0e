"""The page and the files beside it: what they say, and that no name in them is more than a name."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from history_pipeline import plots
from history_pipeline.audit import Audit
from history_pipeline.report import as_json, render, write_figures, write_page
from history_pipeline.verdict import Standing, verdict
from history_pipeline.wording import duration, percentage, shortened
from tests.pipeline.audits import audit_of, random_audit
from tests.pipeline.random_history import random_history
from tests.pipeline.sample import ended

HOSTILE = (
    "<script>document.title='owned'</script>",
    "</style></svg><img src=x onerror=alert(1)>",
    "$\\frac{$",
    "{{ 7 * 7 }}{% raw %}",
    '" onload="x',
    "日本語 🚚",
    "a\nb\r\tc",
    "x" * 129,
)


class Page(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def hostile() -> Audit:
    rows = [
        ended(
            number,
            ("PROCESSED", "FAILED")[number % 2],
            queue_name=name,
            class_name=name,
            processing_owner=name,
            last_error=f"{name.partition(':')[0]}: told",
            error_count=number,
        )
        for number, name in enumerate(HOSTILE + HOSTILE, start=1)
    ]
    return audit_of(rows)


def test_the_headline_comes_first_and_says_whether_all_is_there() -> None:
    page = Page(render(audit_of([ended(1), ended(2, "FAILED")])))
    assert page.text.index(
        "Complete: every entry found has ended once, or is live."
    ) < page.text.index("1 failed: 50 % of")
    assert "bus_events: ids 1 to 2, none is missing." in page.text
    assert page.tags.count("svg") == 5


def test_a_fault_is_told_in_the_headline_and_listed() -> None:
    audit = audit_of([ended(1)], faults={"no_end": 2, "ended_twice": 1})
    assert verdict(audit).standing is Standing.FAULTY
    page = Page(render(audit))
    assert "Not complete: 2 chains have no end; 1 entry ended twice." in page.text
    assert "chain has no end bus_events" in page.text


def test_an_empty_history_makes_a_page_that_says_so() -> None:
    audit = audit_of([])
    assert verdict(audit).standing is Standing.EMPTY
    page = Page(render(audit))
    assert "Nothing has been posted yet." in page.text
    assert "svg" not in page.tags


@pytest.mark.parametrize("audit", [hostile(), random_audit(4, 500)], ids=["hostile", "random"])
def test_no_name_is_read_as_markup_and_nothing_is_loaded(audit: Audit) -> None:
    page = Page(render(audit))
    assert not {"script", "img", "iframe", "link", "object", "image", "a", "base", "form"} & set(
        page.tags
    )
    assert not [
        name
        for name, _ in page.attributes
        if name.startswith("on") or name in {"src", "srcset", "action"}
    ]
    # Within the page itself: parts of a plot that stand in it once.
    links = [value for name, value in page.attributes if name.endswith("href")]
    assert all(link.startswith("#") for link in links)
    assert ("http-equiv", "Content-Security-Policy") in page.attributes


def test_names_stand_in_tables_and_plots_as_they_are() -> None:
    page = Page(render(hostile()))
    for name in HOSTILE:
        assert " ".join(name.split()) in page.text
        assert shortened(name) in page.text


def test_a_name_is_escaped_in_a_plot_too() -> None:
    svg = plots.bars([HOSTILE[0]], {"failed": [1]})
    assert svg is not None
    assert "<script" not in svg
    assert "&lt;script" in svg


@pytest.mark.parametrize(
    "audit", [audit_of([]), hostile(), random_audit(5, 200)], ids=["empty", "hostile", "random"]
)
def test_the_figures_are_the_same_as_json_and_parquet(audit: Audit, tmp_path: Path) -> None:
    paths = write_figures(audit, tmp_path / "new" / "figures")
    document = json.loads((tmp_path / "new" / "figures" / "figures.json").read_text())
    assert document == json.loads(json.dumps(as_json(audit)))
    assert sorted(path.stem for path in paths if path.suffix == ".parquet") == sorted(audit.tables)
    for name, table in audit.tables.items():
        assert pq.read_table(tmp_path / "new" / "figures" / f"{name}.parquet").equals(table)
        assert len(document[name]) == table.num_rows
    assert not list((tmp_path / "new" / "figures").glob(".*"))


def test_every_number_of_the_json_is_one_that_json_has() -> None:
    def numbers(value: Any) -> list[float]:
        if isinstance(value, dict):
            return [number for part in value.values() for number in numbers(part)]
        if isinstance(value, list):
            return [number for part in value for number in numbers(part)]
        return [value] if isinstance(value, float) else []

    found = numbers(as_json(random_audit(6, 300)))
    assert found
    assert all(map(math.isfinite, found))


def test_a_page_that_can_not_be_written_leaves_the_former_one(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("former")
    broken = audit_of([ended(1)])
    broken.tables.clear()  # type: ignore[attr-defined]  # a dict, here
    with pytest.raises(KeyError):
        write_page(broken, page)
    assert page.read_text() == "former"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("days", [0.0, 0.3, 5, 40, 400, 20_000])
def test_throughput_has_a_readable_number_of_bars_for_any_time(days: float) -> None:
    rows = [ended(1), ended(2)]
    rows[1]["finished_date"] = rows[0]["finished_date"].replace(year=1990)
    rows[1]["finished_date"] += (rows[0]["finished_date"] - rows[1]["finished_date"]) * (
        1 - min(1, days / 13_000)
    )
    hours = [row for row in audit_of(rows).rows("statistics") if row["grouping"] == "hour"]
    svg = plots.throughput(hours)
    assert svg is not None
    assert svg.count("var(--processed)") in {2, 3}


def test_a_long_history_is_drawn_with_all_that_ended() -> None:
    hours = [row for row in random_audit(7, 2_000).rows("statistics") if row["grouping"] == "hour"]
    assert plots.step_name(hours) == "hour"
    svg = plots.throughput(hours)
    assert svg is not None
    assert all(f"var(--{outcome})" in svg for outcome in plots.OUTCOMES)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0 µs"),
        (0.0000124, "12 µs"),
        (0.00099999, "1.0 ms"),
        (0.25, "250 ms"),
        (59.99, "1.0 min"),
        (-90, "-1.5 min"),
        (86_400 * 400, "400 d"),
    ],
)
def test_durations_are_told_in_one_unit(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "-"),
        (0, 9, "0 %"),
        (1, 10**6, "0.01 %"),
        (10**6 - 1, 10**6, "99.99 %"),
        (9, 9, "100 %"),
        (1, 8, "12.5 %"),
        (1, 40, "2.5 %"),
    ],
)
def test_a_share_is_never_all_or_nothing_if_it_is_not(part: int, whole: int, text: str) -> None:
    assert percentage(part, whole) == text


def test_gaps_are_judged_by_what_the_database_does() -> None:
    def judged(database: str, **changes: Any) -> tuple[Standing, str]:
        audit = audit_of(random_history(1, 3), database=database)
        table = type(audit.audited[0])(
            **{**vars(audit.audited[0]), "missing_ids": 5, "gaps": 2, **changes}
        )
        found = verdict(Audit(**{**vars(audit), "audited": (table,)}))
        return found.standing, " ".join([found.headline, *found.details])

    standing, told = judged("sqlite")
    assert standing is Standing.UNKNOWN
    assert "5 others were deleted" in told
    assert "This database leaves no gaps" in told
    standing, told = judged("postgresql")
    assert standing is Standing.COMPLETE
    assert "alone is no loss" in told
    assert "may be live" in judged("postgresql", live=None)[1]

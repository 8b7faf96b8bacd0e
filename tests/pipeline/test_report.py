"""The page and the files beside it: what they say, and that no name in them is more than a name."""

from __future__ import annotations

import json
import math
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from history_pipeline import Audit, write_figures, write_page
from history_pipeline.reports import plots
from history_pipeline.reports.alarm import failing, risen
from history_pipeline.reports.drawing import OUTCOMES
from history_pipeline.reports.page import render
from history_pipeline.reports.report import as_json
from history_pipeline.reports.verdict import Standing, verdict
from history_pipeline.reports.wording import duration, percentage, shortened
from tests.pipeline.audits import MADE, audit_of, random_audit
from tests.pipeline.pages import HOSTILE, Page, hostile
from tests.pipeline.random_history import random_history
from tests.pipeline.sample import ended


def test_the_headline_comes_first_and_says_whether_all_is_there() -> None:
    page = Page(render(audit_of([ended(1), ended(2, "FAILED")])))
    assert page.text.index(
        "Complete: every entry found has ended once, or is live."
    ) < page.text.index("1 failed: 50 % of")
    assert "bus_events: ids 1 to 2, none is missing." in page.text
    assert page.tags.count("svg") == 5


@pytest.mark.parametrize(
    ("failed", "ran", "alarming"),
    [(0, 0, False), (0, 5, False), (1, 1, True), (1, 100, True), (9, 1_000, False)],
)
def test_a_share_is_alarming_and_no_number_is(failed: int, ran: int, *, alarming: bool) -> None:
    assert failing({"failed": failed, "processed": ran - failed}) is alarming


@pytest.mark.parametrize(
    ("day", "before", "rose"),
    [
        ((10, 10_000), (10, 20_000), True),
        ((10, 10_000), (11, 20_000), False),
        ((9, 10_000), (0, 20_000), False),
        ((10, 10_000), (0, 70_000), True),
        ((10, 10_000), (0, 0), False),
    ],
)
def test_a_share_has_risen_if_it_doubled_by_more_than_a_few(
    day: tuple[int, int], before: tuple[int, int], *, rose: bool
) -> None:
    rows = [{"failed": failed, "processed": ran - failed} for failed, ran in (day, before)]
    assert risen(*rows) is rose


def test_few_failures_of_many_are_not_red_and_a_share_that_doubled_is() -> None:
    """Yesterday, 1 March, 10 of 1,250 entries failed; on the day before, 2 of 1,000."""
    rows = [
        ended(
            number,
            "FAILED" if number % 125 == 0 and (number > 1_000 or number > 750) else "PROCESSED",
            created_date=MADE - timedelta(days=1 if number > 1_000 else 2),
            finished_date=MADE - timedelta(days=1 if number > 1_000 else 2),
        )
        for number in range(1, 2_251)
    ]
    html = render(audit_of(rows))
    assert html.count('class="bad"') == 2  # of all entries and of the queue, yesterday
    assert html.count("0.8 %<span") == 2
    assert "0.2 %<" in html


def test_no_plot_runs_into_the_future_and_the_page_names_its_period() -> None:
    page = render(audit_of([ended(1)]))
    [words] = re.findall(r'aria-label="(1 entry ended[^"]*)"', page)
    assert "from 2026-03-01 23:00 to 2026-03-02 00:00" in words
    assert "all entries that ended, from 2026-03-01 23:00 to 2026-03-02 00:00 UTC" in page
    # The bar of the last hour ends where the axis does.
    hours = [row for row in audit_of([ended(1)]).rows("statistics") if row["grouping"] == "hour"]
    plot = plots.throughput(hours)
    assert plot is not None
    drawn = re.findall(r'<path d="([^"]*)"[^>]*fill: var\(--processed\)', plot.svg)
    assert max(float(x) for path in drawn for x in re.findall(r"[ML] ([\d.]+)", path)) > 690


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
    assert links
    assert all(link.startswith("#") for link in links)
    assert ("http-equiv", "Content-Security-Policy") in page.attributes


def test_names_stand_in_tables_and_plots_as_they_are() -> None:
    page = Page(render(hostile()))
    for name in HOSTILE:
        assert " ".join(name.split()) in page.text
        assert shortened(name) in page.text


def test_a_name_is_escaped_in_a_plot_too() -> None:
    plot = plots.bars("failures", [HOSTILE[0]], {"failed": [1]})
    assert plot is not None
    assert "<script" not in plot.svg
    assert "&lt;script" in plot.svg


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
    plot = plots.throughput(hours)
    assert plot is not None
    assert plot.svg.count("var(--processed)") in {2, 3}


def test_a_long_history_is_drawn_with_all_that_ended() -> None:
    hours = [row for row in random_audit(7, 2_000).rows("statistics") if row["grouping"] == "hour"]
    assert plots.step_name(hours) == "hour"
    plot = plots.throughput(hours)
    assert plot is not None
    assert all(f"var(--{outcome})" in plot.svg for outcome in OUTCOMES)


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

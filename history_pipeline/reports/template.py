"""The templates of pages, filled in: each page is one file that loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from history_pipeline.period import Period
from history_pipeline.reports.alarm import failing
from history_pipeline.reports.plots import Plot
from history_pipeline.reports.verdict import SENTENCES
from history_pipeline.reports.wording import duration, percentage

SHOWN = 30
"""Rows of a table of a page; the JSON has all."""
NO_NAME = "(none)"

_LARGE = 10.0
"""Numbers from here on are shown without decimals."""

Row = Mapping[str, Any]


def rendered(template: str, *, drawn: Mapping[str, Plot | None], **values: object) -> str:
    """A page as HTML. Every name in it is escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "failing": failing,
        "mean": _mean,
        "fault": lambda fault: SENTENCES[fault][0],
        "duration": duration,
        "count": _count,
        "moment": _moment,
    }
    plots = {
        name: (None if plot is None else {"svg": Markup(plot.svg), "words": plot.words})  # noqa: S704 -- matplotlib's, which escapes
        for name, plot in drawn.items()
    }
    return environment.get_template(template).render(
        **values, plots=plots, percentage=percentage, shown=SHOWN, no_name=NO_NAME
    )


def period_words(period: Period, made: datetime, hours: Sequence[Row], rows: str) -> str:
    """The time in which the rows ended that a page counts; `hours` are their statistics."""
    since, until = period
    if since is None and until is None:
        if not hours:
            return f"all {rows} that have ended"
        first, last = (of(row["hour"] for row in hours) for of in (min, max))
        end = min(last + timedelta(hours=1), max(made, last))
        return f"all {rows} that ended, from {_minute(first)} to {_minute(end)} UTC"
    begins = "" if since is None else f"from {_minute(since)} "
    ends = f"to {_minute(made)}" if until is None else f"before {_minute(until)}"
    return f"{rows} that ended {begins}{ends} UTC"


def precision(error: float) -> str:
    """How exact figures are, by the largest relative error of a percentile."""
    if not error:
        return "All figures are exact."
    return f"Counts are exact, percentiles within {100 * error:.1g} % of the exact ones."


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _mean(number: float) -> str:
    """A mean of counts, to one digit behind the point if it is small."""
    return f"{number:,.0f}" if number >= _LARGE or number == round(number) else f"{number:.1f}"


def _minute(date: datetime) -> str:
    """A date to the minute, unless it has seconds."""
    return _moment(date).removesuffix(":00")


def _moment(date: datetime) -> str:
    return date.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")

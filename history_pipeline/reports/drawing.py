"""The drawing of a plot of the report: its style, its axes, its legend, and the SVG of it.

Colours are the page's CSS variables, so that a plot follows light, dark and print. Texts stay
texts: the browser draws them, in any script, and they can be searched. Names are never read as
markup.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from matplotlib import dates, ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from history_pipeline.audits.figures import PERCENTS
from history_pipeline.reports.wording import shortened

OUTCOMES = ("processed", "failed", "removed", "reaped")
RANKS = tuple(f"p{percent}" for percent in PERCENTS)
_VARIABLES = ("ink", "muted", "line", *OUTCOMES, *RANKS)
COLOURS = {name: f"#{place:06x}" for place, name in enumerate(_VARIABLES, start=0xABC001)}
"""Colours that stand for the page's variables until the SVG is written."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "stickybus",
    "text.parse_math": False,
    "font.size": 8.5,
    "text.color": COLOURS["muted"],
    "axes.edgecolor": COLOURS["line"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": COLOURS["line"],
    "grid.linewidth": 0.6,
    "xtick.color": COLOURS["line"],
    "xtick.labelcolor": COLOURS["muted"],
    "xtick.major.size": 3,
    "ytick.labelcolor": COLOURS["ink"],
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.handlelength": 0.9,
    "legend.handleheight": 0.9,
}


def drawing(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty plot, of a width and height in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Rows from the top, each with its name."""
    axes.set_yticks(range(len(names)), [shortened(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def place_of(date: datetime) -> float:
    """The place of a date on an axis."""
    return float(dates.date2num(date))  # type: ignore[no-untyped-call]  # of matplotlib's making


def name_dates(axis: Axis) -> None:
    """Mark dates on an axis."""
    locator = dates.AutoDateLocator(tz=UTC, minticks=3, maxticks=9)  # type: ignore[no-untyped-call]  # as above
    axis.set_major_locator(locator)
    axis.set_major_formatter(ticker.FuncFormatter(_date))


def _date(place: float, _: object = None) -> str:
    """A place on the axis in words that need no other tick: the year stands with each January."""
    date: datetime = dates.num2date(place, tz=UTC)  # type: ignore[no-untyped-call]  # as above
    if date.hour or date.minute:
        return f"{date:%H:%M}"
    day = f"{date.day} {date:%b}"
    return f"{day} {date.year}" if date.month == 1 else day


def count_in_whole_numbers(axis: Axis) -> None:
    """Mark whole numbers on an axis."""
    axis.set_major_locator(ticker.MaxNLocator(nbins=5, integer=True))
    axis.set_major_formatter(ticker.FuncFormatter(lambda count, _: f"{count:,.0f}"))


def add_legend(figure: Figure, *, reverse: bool = False) -> None:
    """Name the colours above a plot."""
    figure.legend(
        loc="outside upper left",
        ncols=len(_VARIABLES),
        reverse=reverse,
        columnspacing=1.2,
        borderpad=0,
    )


def svg_of(figure: Figure, name: str) -> str:
    """The figure as an SVG element as wide as what it stands in.

    Its parts have ids that begin with its name: other plots have such parts, too.
    """
    written = io.StringIO()
    with warnings.catch_warnings():
        # The browser has fonts for other scripts; here they are only measured.
        warnings.filterwarnings(
            "ignore", message=r"Glyph \d+ .*missing from font", category=UserWarning
        )
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(written, format="svg", transparent=True, metadata=nothing)
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", svg, count=1)
    for variable, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", svg)

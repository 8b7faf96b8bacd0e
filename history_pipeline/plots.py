"""The plots of the report, each an SVG element as text, or None if there is nothing to draw.

Colours are the page's CSS variables, so that a plot follows light, dark and print. Texts stay
texts: the browser draws them, in any script, and they can be searched. Names are never read as
markup.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import matplotlib as mpl
from matplotlib import dates, ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from history_pipeline.percentiles import PERCENTS
from history_pipeline.wording import duration, shortened

Row = Mapping[str, Any]

OUTCOMES = ("processed", "failed", "removed", "reaped")
MOST_BARS = 12
"""Queues or types that a plot shows; the tables show more."""

_RANKS = tuple(f"p{percent}" for percent in PERCENTS)
_VARIABLES = ("ink", "muted", "line", *OUTCOMES, *_RANKS)
_COLOURS = {name: f"#{place:06x}" for place, name in enumerate(_VARIABLES, start=0xABC001)}
"""Colours that stand for the page's variables until the SVG is written."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "stickybus",
    "text.parse_math": False,
    "font.size": 8.5,
    "text.color": _COLOURS["muted"],
    "axes.edgecolor": _COLOURS["line"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _COLOURS["line"],
    "grid.linewidth": 0.6,
    "xtick.color": _COLOURS["line"],
    "xtick.labelcolor": _COLOURS["muted"],
    "xtick.major.size": 3,
    "ytick.labelcolor": _COLOURS["ink"],
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.handlelength": 0.9,
    "legend.handleheight": 0.9,
}
_WIDE, _HALF = 10.4, 5.1
_ROW, _MARGIN = 0.28, 0.75
"""Inches: the page's width, its half's, a bar's height, and the space around all bars."""
_MOST_STEPS = 180
_STEPS = {
    timedelta(hours=1): "hour",
    timedelta(hours=6): "6 hours",
    timedelta(days=1): "day",
    timedelta(days=7): "week",
    timedelta(days=30): "30 days",
}
_TWO_DECADES = 100.0
"""A logarithmic scale that holds less has more than its powers of ten named."""
_SMALLEST_SECONDS = 1e-6
"""Smallest value of a logarithmic scale.

Clocks that differ make negative times, which it can't show.
"""


def step_of(hours: Sequence[Row]) -> timedelta:
    """The time of one bar of `throughput`."""
    spread = max(row["hour"] for row in hours) - min(row["hour"] for row in hours)
    return next((step for step in _STEPS if spread / step < _MOST_STEPS), [*_STEPS][-1])


def step_name(hours: Sequence[Row]) -> str:
    """Return that time in words."""
    return _STEPS[step_of(hours)] if hours else "hour"


def throughput(hours: Sequence[Row]) -> str | None:
    """Draw the number of entries that ended over time, by outcome, from the statistics by hour."""
    if not hours:
        return None
    step, first = step_of(hours), min(row["hour"] for row in hours)
    counts: dict[datetime, dict[str, int]] = {}
    for row in hours:
        start = first + (row["hour"] - first) // step * step
        for outcome in OUTCOMES:
            of_step = counts.setdefault(start, dict.fromkeys(OUTCOMES, 0))
            of_step[outcome] += row[outcome]
    starts = sorted(counts)
    with mpl.rc_context(_STYLE):
        figure, axes = _drawing(_WIDE, 2.8)
        below = [0] * len(starts)
        for outcome in OUTCOMES:
            heights = [counts[start][outcome] for start in starts]
            if any(heights):
                width = 0.86 * (step / timedelta(days=1))
                places = [*map(_place, starts)]
                axes.bar(
                    places,
                    heights,
                    width,
                    below,
                    align="edge",
                    color=_COLOURS[outcome],
                    label=outcome,
                )
            below = [one + other for one, other in zip(below, heights, strict=True)]
        # At least twelve steps: a single bar would be as wide as the page.
        last = max(starts[-1], first + 11 * step) + step
        axes.set_xlim(_place(first - step / 2), _place(last + step / 2))
        _dates(axes.xaxis)
        axes.grid(visible=False, axis="x")
        _whole_numbers(axes.yaxis)
        _legend(figure)
        return _svg(figure)


def latencies(rows: Sequence[tuple[str, Row, str]]) -> str | None:
    """Percentiles of times, a line for each of `rows`.

    A row is a name, its statistics, and the measure that is shown.
    """
    shown = rows[:MOST_BARS]
    if not shown:
        return None
    with mpl.rc_context(_STYLE):
        figure, axes = _drawing(_HALF, _MARGIN + _ROW * len(shown))
        for place, (_, row, measure) in enumerate(shown):
            times = [max(_SMALLEST_SECONDS, row[f"{measure}_{rank}"]) for rank in _RANKS]
            axes.plot(
                [times[0], times[-1]], [place, place], color=_COLOURS["line"], linewidth=3, zorder=2
            )
            for rank, time in reversed([*zip(_RANKS, times, strict=True)]):
                axes.scatter(
                    time, place, 34, _COLOURS[rank], label=rank if place == 0 else None, zorder=3
                )
            axes.annotate(
                duration(row[f"{measure}_{_RANKS[-1]}"]),
                (times[-1], place),
                (7, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axes.set_xscale("log")
        # Room for the text behind the last dot.
        low, high = axes.get_xlim()
        axes.set_xlim(low, high * (high / low) ** 0.16)
        wide = high > low * _TWO_DECADES
        axes.xaxis.set_major_locator(
            ticker.LogLocator(subs=(1.0,) if wide else (1.0, 3.0), numticks=7)
        )
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda seconds, _: duration(seconds)))
        _named(axes, [name for name, _, _ in shown])
        _legend(figure, reverse=True)
        return _svg(figure)


def bars(
    names: Sequence[str],
    series: Mapping[str, Sequence[int]],
    *,
    most: int = MOST_BARS,
    legend: bool = True,
) -> str | None:
    """Horizontal bars of counts, each with its sum behind it.

    `series` are stacked, by the variable of their colour.
    """
    shown = names[:most]
    if not shown or not any(map(any, series.values())):
        return None
    with mpl.rc_context(_STYLE):
        figure, axes = _drawing(_HALF, _MARGIN + _ROW * len(shown) - (0 if legend else 0.2))
        sums = [0] * len(shown)
        for name, counts in series.items():
            if any(counts[:most]):
                axes.barh(
                    range(len(shown)), counts[:most], 0.64, sums, color=_COLOURS[name], label=name
                )
            sums = [one + other for one, other in zip(sums, counts, strict=False)]
        for place, count in enumerate(sums):
            axes.annotate(
                f"{count:,}",
                (count, place),
                (5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axes.set_xlim(0, max(sums) * 1.16)
        _whole_numbers(axes.xaxis)
        _named(axes, shown)
        if legend:
            _legend(figure)
        return _svg(figure)


def _drawing(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _named(axes: Axes, names: Sequence[str]) -> None:
    """Rows from the top, each with its name."""
    axes.set_yticks(range(len(names)), [shortened(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def _place(date: datetime) -> float:
    return float(dates.date2num(date))  # type: ignore[no-untyped-call]  # of matplotlib's making


def _dates(axis: Axis) -> None:
    locator = dates.AutoDateLocator(tz=UTC, minticks=3, maxticks=9)  # type: ignore[no-untyped-call]  # as above
    axis.set_major_locator(locator)
    axis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]  # as above


def _whole_numbers(axis: Axis) -> None:
    axis.set_major_locator(ticker.MaxNLocator(nbins=5, integer=True))
    axis.set_major_formatter(ticker.FuncFormatter(lambda count, _: f"{count:,.0f}"))


def _legend(figure: Figure, *, reverse: bool = False) -> None:
    figure.legend(
        loc="outside upper left",
        ncols=len(_VARIABLES),
        reverse=reverse,
        columnspacing=1.2,
        borderpad=0,
    )


def _svg(figure: Figure) -> str:
    """The figure as an SVG element as wide as what it stands in."""
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
    for name, colour in _COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg

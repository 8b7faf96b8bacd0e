"""The plots of the report, each a `Plot`, or None if there is nothing to draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib import ticker

from history_pipeline.reports.drawing import (
    COLOURS,
    OUTCOMES,
    RANKS,
    STYLE,
    add_legend,
    count_in_whole_numbers,
    drawing,
    name_dates,
    name_rows,
    place_of,
    svg_of,
)
from history_pipeline.reports.wording import duration

Row = Mapping[str, Any]


class Plot(NamedTuple):
    """An SVG element as text, and the same in words, for those who don't see it."""

    svg: str
    words: str


MOST_BARS = 12
"""Queues or types that a plot shows; the tables show more."""

_WIDE, _HALF = 10.4, 5.1
_ROW, _MARGIN = 0.28, 0.75
"""Inches: the page's width, its half's, a bar's height, and the space around all bars."""
_MOST_STEPS = 180
"""Steps of time that a plot shows at most."""
_STEPS = {
    timedelta(hours=1): "hour",
    timedelta(hours=6): "6 hours",
    timedelta(days=1): "day",
    timedelta(days=7): "week",
    timedelta(days=30): "30 days",
}
_TWO_DECADES = 100.0
"""A logarithmic scale that holds less has more than its powers of ten named."""
_MARKERS = dict(zip(RANKS, "osD^", strict=True))
"""Shapes beside the colours, which not everybody can tell from one another."""
_BY_OUTCOME = {outcome: outcome for outcome in OUTCOMES}
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


def throughput(
    hours: Sequence[Row],
    series: Mapping[str, str] = _BY_OUTCOME,
    rows: tuple[str, str] = ("entry", "entries"),
) -> Plot | None:
    """Draw the number of rows that ended over time, from the statistics by hour.

    `series` are the columns of counts, each with the variable of its colour; `rows` is what one row
    and several rows are called.
    """
    if not hours:
        return None
    step, first = step_of(hours), min(row["hour"] for row in hours)
    counts: dict[datetime, dict[str, int]] = {}
    for row in hours:
        start = first + (row["hour"] - first) // step * step
        for outcome in series:
            of_step = counts.setdefault(start, dict.fromkeys(series, 0))
            of_step[outcome] += row[outcome]
    starts = sorted(counts)
    with mpl.rc_context(STYLE):
        figure, axes = drawing(_WIDE, 2.8)
        below = [0] * len(starts)
        for outcome in series:
            heights = [counts[start][outcome] for start in starts]
            if any(heights):
                width = 0.86 * (step / timedelta(days=1))
                places = [*map(place_of, starts)]
                axes.bar(
                    places,
                    heights,
                    width,
                    below,
                    align="edge",
                    color=COLOURS[series[outcome]],
                    label=outcome,
                )
            below = [one + other for one, other in zip(below, heights, strict=True)]
        # At least twelve steps: a single bar would be as wide as the page. Steps are added before
        # the first: those after the last may lie in the future.
        end = starts[-1] + step
        axes.set_xlim(place_of(min(first, end - 12 * step) - step / 4), place_of(end))
        name_dates(axes.xaxis)
        axes.grid(visible=False, axis="x")
        count_in_whole_numbers(axes.yaxis)
        if len(series) > 1:
            add_legend(figure)
        most = max(range(len(starts)), key=below.__getitem__)
        words = (
            f"{sum(below):,} {rows[sum(below) != 1]} ended from {first:%Y-%m-%d %H:%M} to "
            f"{end:%Y-%m-%d %H:%M}; most, {below[most]:,}, from {starts[most]:%Y-%m-%d %H:%M} "
            "on. "
            + _listed((name, f"{sum(one[name] for one in counts.values()):,}") for name in series)
        )
        return Plot(svg_of(figure, "throughput"), words)


def latencies(name: str, rows: Sequence[Row], measure: str) -> Plot | None:
    """Percentiles of a measured time, a line for each of `rows`, the statistics of queues.

    `name` is that of the plot, of which a page has one.
    """
    shown = [row for row in rows if row[f"{measure}_count"]][:MOST_BARS]
    if not shown:
        return None
    with mpl.rc_context(STYLE):
        figure, axes = drawing(_HALF, _MARGIN + _ROW * len(shown))
        for place, row in enumerate(shown):
            times = [max(_SMALLEST_SECONDS, row[f"{measure}_{rank}"]) for rank in RANKS]
            axes.plot(
                [times[0], times[-1]], [place, place], color=COLOURS["line"], linewidth=3, zorder=2
            )
            for rank, time in reversed([*zip(RANKS, times, strict=True)]):
                axes.scatter(
                    time,
                    place,
                    34,
                    COLOURS[rank],
                    marker=_MARKERS[rank],
                    label=rank if place == 0 else None,
                    zorder=3,
                )
            axes.annotate(
                duration(row[f"{measure}_{RANKS[-1]}"]),
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
        name_rows(axes, [row["queue_name"] for row in shown])
        add_legend(figure, reverse=True)
        words = _listed(
            (
                row["queue_name"],
                ", ".join(f"{rank} {duration(row[f'{measure}_{rank}'])}" for rank in RANKS),
            )
            for row in shown
        )
        return Plot(svg_of(figure, name), words)


def bars(
    name: str,
    names: Sequence[str],
    series: Mapping[str, Sequence[int]],
    *,
    legend: bool = True,
) -> Plot | None:
    """Horizontal bars of counts, each with its sum behind it.

    `name` is that of the plot, of which a page has one. `series` are stacked, by the variable of
    their colour.
    """
    shown = names[:MOST_BARS]
    if not shown or not any(map(any, series.values())):
        return None
    with mpl.rc_context(STYLE):
        figure, axes = drawing(_HALF, _MARGIN + _ROW * len(shown) - (0 if legend else 0.2))
        sums = [0] * len(shown)
        for outcome, counts in series.items():
            if any(counts[:MOST_BARS]):
                axes.barh(
                    range(len(shown)),
                    counts[:MOST_BARS],
                    0.64,
                    sums,
                    color=COLOURS[outcome],
                    label=outcome,
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
        count_in_whole_numbers(axes.xaxis)
        name_rows(axes, shown)
        if legend:
            add_legend(figure)
        words = _listed(
            (
                bar,
                ", ".join(
                    _counted(counts[place], of, named=legend) for of, counts in series.items()
                ),
            )
            for place, bar in enumerate(shown)
        )
        return Plot(svg_of(figure, name), words)


def _counted(count: int, outcome: str, *, named: bool) -> str:
    return f"{count:,} {outcome}" if named else f"{count:,}"


def _listed(parts: Iterable[tuple[str, str]]) -> str:
    return "; ".join(f"{' '.join(name.split())}: {figures}" for name, figures in parts) + "."

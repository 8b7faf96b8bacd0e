"""The figures of some spans of time, gathered from the roll-ups of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count, pairwise

import pyarrow as pa

from history_pipeline.period import Period
from history_pipeline.rollups.rolling import Rolling
from history_pipeline.rollups.tallies import Rollup
from history_pipeline.rows.arrow_entries import within

Spans = Mapping[str, Period]
"""The times whose figures are wanted, by name."""

_MERGED = 16
"""The number of roll-ups that are merged into one."""


class Gathered:
    """The figures of some spans. Rows that lie in several of them are rolled up once."""

    def __init__(self, rolling: Rolling, spans: Spans) -> None:
        self._rolling = rolling
        self._pieces = {
            piece: of_piece
            for piece in _pieces(spans.values())
            if (of_piece := [span for span, period in spans.items() if _holds(period, piece)])
        }
        self._levels: dict[str, list[list[Rollup]]] = {span: [] for span in spans}

    def add_rows(self, rows: pa.Table) -> None:
        """Add prepared rows to the spans that they lie in."""
        for piece, spans in self._pieces.items():
            chosen = within(rows, piece)
            if len(chosen):
                self.add(self._rolling.figures_of(chosen), spans)

    def add(self, rollup: Rollup, spans: Iterable[str]) -> None:
        """Add a roll-up to the figures of some spans."""
        for span in spans:
            self._add(rollup, self._levels[span])

    def parts(self, span: str) -> list[Rollup]:
        """Roll-ups which together are the figures of a span."""
        return [rollup for level in self._levels[span] for rollup in level]

    def _add(self, rollup: Rollup, levels: list[list[Rollup]]) -> None:
        # By levels: else the sum of a year would be merged anew with every few days.
        for number in count():
            if number == len(levels):
                levels.append([])
            levels[number].append(rollup)
            if len(levels[number]) < _MERGED:
                return
            rollup = self._rolling.merged(levels[number], self._rolling.figures)
            levels[number] = []


def _pieces(periods: Iterable[Period]) -> list[Period]:
    """All time, cut at the bounds of some periods."""
    bounds = sorted({bound for period in periods for bound in period if bound is not None})
    return [Period(*piece) for piece in pairwise([None, *bounds, None])]


def _holds(period: Period, piece: Period) -> bool:
    """Whether all of a piece lies in a period, which cuts none."""
    begun = period.since is None or (piece.since is not None and piece.since >= period.since)
    over = period.until is None or (piece.until is not None and piece.until <= period.until)
    return begun and over

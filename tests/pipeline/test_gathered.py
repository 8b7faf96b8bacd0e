"""Figures of spans of time that overlap, gathered from many roll-ups."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pyarrow as pa
import pytest
from pyarrow import compute

from history_pipeline.period import EVER, Period
from history_pipeline.rollups.gathered import Gathered
from history_pipeline.rollups.rolling import Rolling
from history_pipeline.rollups.rollup import ROLLED_ENTRIES
from history_pipeline.rollups.tallies import Rollup
from history_pipeline.rows.arrow_entries import entries, within
from history_pipeline.rows.arrow_schema import READ_SCHEMA
from tests.pipeline.random_history import START, random_history

HOURS = [START + timedelta(hours=hours) for hours in (2, 3, 5, 6)]
SPANS = {
    "ever": EVER,
    "long": Period(HOURS[0], HOURS[3]),
    "first": Period(HOURS[0], HOURS[1]),
    "second": Period(HOURS[1], HOURS[2]),
    "since": Period(since=HOURS[2]),
    "none": Period(HOURS[3], HOURS[0]),
}


@pytest.fixture
def rows() -> pa.Table:
    return entries(pa.Table.from_pylist(random_history(5, 300), READ_SCHEMA), "bus_events")


def told(*parts: Rollup) -> dict[str, list[str]]:
    return texts(ROLLED_ENTRIES.merged(parts, ROLLED_ENTRIES.figures))


def texts(rollup: Rollup) -> dict[str, list[str]]:
    return {name: sorted(map(str, table.to_pylist())) for name, table in rollup.items()}


@pytest.mark.parametrize("batch", [300, 7, 1])
def test_each_span_has_the_figures_of_its_rows_however_these_come(
    rows: pa.Table, batch: int
) -> None:
    gathered = Gathered(ROLLED_ENTRIES, SPANS)
    for start in range(0, len(rows), batch):
        gathered.add_rows(rows.slice(start, batch))
    for span, period in SPANS.items():
        chosen = within(rows, period)
        assert told(*gathered.parts(span)) == told(ROLLED_ENTRIES.figures_of(chosen)), span
        assert len(gathered.parts(span)) <= 2 * 15 + 1
    assert not gathered.parts("none")


def test_a_row_that_lies_in_several_spans_is_rolled_up_once(rows: pa.Table) -> None:
    """That is most of the work, and yesterday lies in the period of most reports."""
    counted = list[int]()

    def figures_of(chosen: pa.Table) -> Rollup:
        counted.extend(chosen["record_id"].to_pylist())
        return ROLLED_ENTRIES.figures_of(chosen)

    rolling = ROLLED_ENTRIES._replace(figures_of=figures_of)
    Gathered(rolling, SPANS).add_rows(rows)
    assert sorted(counted) == rows["record_id"].to_pylist()
    counted.clear()
    Gathered(rolling, {"second": SPANS["second"]}).add_rows(rows)
    assert sorted(counted) == within(rows, SPANS["second"])["record_id"].to_pylist()


def test_the_sum_of_many_roll_ups_is_not_merged_anew_with_each_few_that_follow(
    rows: pa.Table,
) -> None:
    """The sum of a year is as large as its hours are many."""
    merged = list[int]()

    class Counting(Rolling):
        """It counts the entries that it puts together."""

        def merged(self, rollups: Iterable[Rollup], names: Iterable[str] | None = None) -> Rollup:
            given = list(rollups)
            merged.extend(entries_of(one) for one in given)
            return super().merged(given, names)

    gathered = Gathered(Counting(*ROLLED_ENTRIES), {"ever": EVER})
    given = ROLLED_ENTRIES.figures_of(rows)
    for _ in range(256):
        gathered.add(given, ["ever"])
    assert sum(merged) == 2 * 256 * entries_of(given)
    [found] = gathered.parts("ever")
    assert entries_of(found) == 256 * entries_of(given)


def test_a_single_roll_up_is_summed_already(rows: pa.Table) -> None:
    """As that of a day in one file is: to sum it anew would be work for nothing."""
    one, none = (
        ROLLED_ENTRIES.figures_of(some) | ROLLED_ENTRIES.ids_of(some) for some in (rows, rows[:0])
    )
    assert texts(ROLLED_ENTRIES.merged([one])) == texts(ROLLED_ENTRIES.merged([one, none]))
    assert all(table is one[name] for name, table in ROLLED_ENTRIES.merged([one]).items())


def entries_of(rollup: Rollup) -> int:
    found: int = compute.sum(rollup["retries"]["entries"]).as_py()
    return found

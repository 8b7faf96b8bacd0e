"""A search of Parquet files: the columns that decide are read first, others where a row matches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from pyarrow import compute
from pyarrow.parquet import ParquetFile

from history_pipeline.archives.manifest import DataFile
from history_pipeline.archives.parquet_files import BATCH_ROWS, named

_PLACE = "place in the row group"
"""No column of a history has this name."""


class Condition(NamedTuple):
    """A test of the values of one column against a value."""

    column: str
    test: Callable[[Any, Any], Any]
    value: Any


def unless_none(column: str, test: Callable[[Any, Any], Any], value: Any) -> Iterator[Condition]:
    """A condition, unless there is nothing to compare with."""
    if value is not None:
        yield Condition(column, test, value)


class Search(NamedTuple):
    """What the rows must meet, and the columns by which the highest come first.

    Attributes:
        conditions: All of them are met.
        order: Names of columns.
        schema: All columns that such files have now.
    """

    conditions: Sequence[Condition]
    order: tuple[str, ...]
    schema: pa.Schema

    def places(
        self, parquet: ParquetFile, group: int, limit: int | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """The highest rows of a row group that match, in any order.

        Of each the values of `order`, and the place in the group.
        """
        names = list(dict.fromkeys([*self.order, *(one.column for one in self.conditions)]))
        rows = named(parquet.read_row_group(group, columns=names), names, self.schema)
        masks = [one.test(rows[one.column], one.value) for one in self.conditions]
        matching = compute.indices_nonzero(
            reduce(compute.and_kleene, masks, pa.repeat(pa.scalar(value=True), len(rows)))
        )
        found = rows.select(self.order).take(matching).append_column(_PLACE, matching)
        if limit and limit < len(found):
            # By Arrow: a day has millions of rows, and as Python's values they take gigabytes.
            keys = [(name, "descending") for name in found.column_names]
            found = found.take(compute.select_k_unstable(found, k=limit, sort_keys=keys))
        yield from zip(*(column.to_pylist() for column in found.columns), strict=True)

    def rows(
        self, parquet: ParquetFile, names: Sequence[str], limit: int | None
    ) -> Iterator[tuple[Any, ...]]:
        """The values of some columns of the highest rows that match, in any order."""
        places = [
            (*order, group, place)
            for group in range(parquet.num_row_groups)
            for *order, place in self.places(parquet, group, limit)
        ]
        highest = sorted(places, reverse=True)[:limit]
        for group, chosen in groupby(sorted(highest, key=itemgetter(-2, -1)), key=itemgetter(-2)):
            yield from self._read(parquet, names, group, [place for *_, place in chosen])

    def _read(
        self, parquet: ParquetFile, names: Sequence[str], group: int, places: list[int]
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a row group at ascending places.

        Columns that are not needed are not kept in memory.
        """
        first = 0
        for batch in parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(names)):
            here = [place - first for place in places if first <= place < first + batch.num_rows]
            if here:
                rows = named(pa.Table.from_batches([batch]).take(here), names, self.schema)
                yield from zip(*(rows[name].to_pylist() for name in names), strict=True)
            first += batch.num_rows
            if first > places[-1]:
                return


class SoughtRows(Protocol):
    """Rows that are looked for in the files of an archive."""

    search: Search

    def may_be_in(self, file: DataFile) -> bool:
        """Whether what the manifest says of a file allows that it holds some of them."""

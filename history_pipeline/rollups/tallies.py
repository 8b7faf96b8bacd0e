"""The tallies of roll-ups: tables whose rows add up with those of other roll-ups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyarrow import compute

from history_pipeline.audits.figures import STANDING_OUT
from history_pipeline.rollups.id_ranges import IdRanges
from history_pipeline.rollups.sketch import buckets

Rollup = dict[str, pa.Table]
"""Tables by name."""
Groupings = Mapping[str, Sequence[str]]
"""The keys of each grouping, by its name."""

TEXT, COUNT = pa.string(), pa.int64()
DATE = pa.timestamp("us", tz="UTC")
RANGE = ("first_id", "last_id", "rows")
"""The fields of `IdRanges`."""
IDS = pa.schema([("table_name", TEXT), *((name, COUNT) for name in RANGE)])
"""Ids of rows that are chains of their own and have ended, as ranges."""
CHAINS = pa.schema(
    [
        *(("table_name", TEXT), ("record_id", COUNT), ("chain_id", COUNT)),
        ("terminal", pa.bool_()),
    ]
)
"""The other rows: copies, and those that were taken from a dead node."""
ID_TABLES = ("ids", "chains")
"""The tables by which completeness is judged."""


class Tally(NamedTuple):
    """A table of counts. Rows of equal `keys` are one row, whose values are aggregated."""

    keys: list[tuple[str, pa.DataType]]
    values: dict[str, tuple[pa.DataType, str]]

    @property
    def schema(self) -> pa.Schema:
        """Keys, then values."""
        return pa.schema([*self.keys, *((name, of) for name, (of, _) in self.values.items())])

    def summed(self, rows: pa.Table) -> pa.Table:
        """Rows that have these columns, those of equal keys put together."""
        keys = [name for name, _ in self.keys]
        chosen, texts = _coded(rows.select([*keys, *self.values]))
        aggregates = [(name, how) for name, (_, how) in self.values.items()]
        found = chosen.group_by(keys).aggregate(aggregates)
        named = {f"{name}_{how}": name for name, how in aggregates}
        found = found.rename_columns([named.get(name, name) for name in found.column_names])
        for name, values in texts.items():
            place = found.column_names.index(name)
            found = found.set_column(place, name, values.take(found[name]))
        return found.select(self.schema.names).cast(self.schema)


def _coded(rows: pa.Table) -> tuple[pa.Table, dict[str, pa.Array]]:
    """Rows with numbers in the place of texts, and the texts by number of each such column.

    A sum would keep a copy of every row's texts.
    """
    texts = dict[str, pa.Array]()
    for place, field in enumerate(rows.schema):
        if field.type == TEXT:
            # By chunks, which share one dictionary: an array holds no more than 2 GB of texts.
            coded = rows[field.name].dictionary_encode().unify_dictionaries().chunks
            texts[field.name] = coded[0].dictionary if coded else pa.array([], TEXT)
            numbers = pa.chunked_array([chunk.indices for chunk in coded], pa.int32())
            rows = rows.set_column(place, field.name, numbers)
    return rows, texts


class Order(NamedTuple):
    """A table of the first `STANDING_OUT` rows in an order."""

    schema: pa.Schema
    by: list[tuple[str, str]]
    """Columns, each `ascending` or `descending`."""

    def summed(self, rows: pa.Table) -> pa.Table:
        """The first of some rows."""
        chosen = rows.select(self.schema.names).cast(self.schema)
        if len(chosen) > STANDING_OUT:
            by, _ = self.by[0]
            # Sorting all of them by all keys would take most of the time.
            place = compute.select_k_unstable(chosen, STANDING_OUT, [self.by[0]])
            least = chosen[by][place[-1].as_py()]
            chosen = chosen.filter(compute.greater_equal(chosen[by], least))
        return chosen.sort_by(self.by).slice(0, STANDING_OUT)


class Grouped(NamedTuple):
    """Rows counted in several groupings; in each, the keys of the others are null.

    Attributes:
        keys: All keys, with their types.
        groupings: Those that are counted.
    """

    keys: list[tuple[str, pa.DataType]]
    groupings: Groupings

    @property
    def group(self) -> list[tuple[str, pa.DataType]]:
        """The columns that name a group."""
        return [("grouping", TEXT), *self.keys]

    def counts(self, counts: Iterable[str], measures: Iterable[str]) -> Tally:
        """The tally that has counts and the sums and extremes of measured times."""
        how = {
            "count": (COUNT, "sum"),
            # Not whole numbers: dates written by hand would pass 64 bits.
            "total": (pa.float64(), "sum"),
            "min": (COUNT, "min"),
            "max": (COUNT, "max"),
        }
        timed = {f"{measure}_{name}": of for measure in measures for name, of in how.items()}
        return Tally(self.group, {**dict.fromkeys(counts, (COUNT, "sum")), **timed})

    def times(self) -> Tally:
        """The tally that has measured times, by bucket."""
        keys = [*self.group, ("measure", TEXT), ("bucket", pa.int32())]
        return Tally(keys, {"entries": (COUNT, "sum")})

    def counted(
        self,
        rows: pa.Table,
        columns: Mapping[str, pa.Array | pa.ChunkedArray],
        measures: Iterable[str],
        tally: Tally,
    ) -> pa.Table:
        """The `counts` of rows, each of which counts as `columns` say, with `…_micros`."""
        columns = dict(columns)
        for measure in measures:
            micros = rows[f"{measure}_micros"]
            columns |= {
                f"{measure}_count": micros.is_valid(),
                f"{measure}_total": micros.cast(pa.float64()),
                f"{measure}_min": micros,
                f"{measure}_max": micros,
            }
        values = {name: column.cast(tally.values[name][0]) for name, column in columns.items()}
        return self._by_grouping(pa.table({key: rows[key] for key, _ in self.keys} | values), tally)

    def timed(self, rows: pa.Table, measures: Iterable[str], tally: Tally) -> pa.Table:
        """The `times` of rows."""
        tables = []
        for measure in measures:
            timed = rows.filter(rows[f"{measure}_micros"].is_valid())
            columns = {key: timed[key] for key, _ in self.keys} | {
                "measure": pa.repeat(pa.scalar(measure), len(timed)),
                "bucket": pa.array(buckets(timed[f"{measure}_micros"]), pa.int32()),
                "entries": ones(timed),
            }
            tables.append(self._by_grouping(pa.table(columns), tally))
        return pa.concat_tables(tables)

    def of(self, table: pa.Table, tally: Tally, grouping: str, keys: Sequence[str]) -> pa.Table:
        """The rows of one grouping of a table of `tally`; else of the first one, by fewer keys."""
        kept = grouping if grouping in self.groupings else next(iter(self.groupings))
        rows = table.filter(compute.equal(table["grouping"], kept))
        if kept == grouping:
            return rows
        groups = {
            key: rows[key] if key in keys else pa.nulls(len(rows), kind) for key, kind in self.keys
        }
        others = {key: rows[key] for key in table.column_names[len(self.group) :]}
        names = {"grouping": pa.repeat(pa.scalar(grouping), len(rows))}
        return tally.summed(pa.table(names | groups | others))

    def _by_grouping(self, rows: pa.Table, tally: Tally) -> pa.Table:
        found, more = [], len(self.group)
        for grouping, kept in self.groupings.items():
            keys = [*(key for key in tally.keys if key[0] in kept), *tally.keys[more:]]
            grouped = Tally(keys, tally.values).summed(rows)
            of_group = {"grouping": pa.repeat(pa.scalar(grouping), len(grouped))} | {
                key: grouped[key] if key in kept else pa.nulls(len(grouped), kind)
                for key, kind in self.keys
            }
            others = {name: grouped[name] for name in tally.schema.names[more:]}
            found.append(pa.table(of_group | others, schema=tally.schema))
        return pa.concat_tables(found)


def ones(rows: pa.Table) -> pa.Array:
    """A 1 for each row."""
    return pa.repeat(pa.scalar(1, COUNT), len(rows))


def ids_table(table: str, ranges: IdRanges) -> pa.Table:
    """A table of `IDS`."""
    names = pa.repeat(pa.scalar(table, TEXT), len(ranges.first))
    return pa.table({"table_name": names, **dict(zip(RANGE, ranges, strict=True))}, schema=IDS)


def ranges_by_table(ids: pa.Table) -> dict[str, IdRanges]:
    """The ranges of a table of `IDS`, put together, by main table."""
    found = dict[str, IdRanges]()
    for table in compute.unique(ids["table_name"]).to_pylist():
        own = ids.filter(compute.equal(ids["table_name"], table))
        found[table] = IdRanges.summed(*(own[name].to_numpy() for name in RANGE))
    return found

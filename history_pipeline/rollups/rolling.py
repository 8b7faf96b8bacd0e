"""The way in which rows of a kind of history are read and rolled up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from history_pipeline.rollups.tallies import (
    CHAINS,
    ID_TABLES,
    IDS,
    Order,
    Rollup,
    Tally,
    ids_table,
    ranges_by_table,
)
from history_pipeline.rows.kind import HistoryKind


class Rolling(NamedTuple):
    """How the rows of a kind of history are read and rolled up.

    Attributes:
        kind: The kind.
        columns: What is read of a row.
        prepared: Makes rows of `columns`, of the table with a name, into those that are counted.
        figures_of: The figures of prepared rows, without their ids.
        ids_of: The ids and chains of prepared rows, all of one table.
        figures: The tables of the figures.
    """

    kind: HistoryKind
    columns: pa.Schema
    prepared: Callable[[pa.Table, str], pa.Table]
    figures_of: Callable[[pa.Table], Rollup]
    ids_of: Callable[[pa.Table], Rollup]
    figures: Mapping[str, Tally | Order]

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """Those of all tables of a roll-up, by name."""
        found = {name: tally.schema for name, tally in self.figures.items()}
        return found | dict(zip(ID_TABLES, (IDS, CHAINS), strict=True))

    def merged(self, rollups: Iterable[Rollup], names: Iterable[str] | None = None) -> Rollup:
        """The roll-up of all rows of some roll-ups, or some tables of it."""
        given, schemas, found = list(rollups), self.schemas, Rollup()
        if len(given) == 1:
            # Its rows are summed already, as those of a day in one file are.
            return {name: given[0][name] for name in (schemas if names is None else names)}
        for name in schemas if names is None else names:
            tables = [schemas[name].empty_table(), *(rollup[name] for rollup in given)]
            table = pa.concat_tables(tables)
            if name in self.figures:
                table = self.figures[name].summed(table)
            elif name == "ids":
                ranges = ranges_by_table(table).items()
                table = pa.concat_tables([IDS.empty_table(), *(ids_table(*one) for one in ranges)])
            found[name] = table
        return found

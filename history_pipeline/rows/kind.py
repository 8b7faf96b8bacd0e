"""The kinds of history that can be read and archived: entries that ended, and finished tasks.

Rows of both have an id and the date when they ended, in columns of the same names. All else that
an archive must know of them is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Table

from history_pipeline.rows.columns import (
    HISTORY_COLUMNS,
    PAYLOAD,
    ArchivedColumn,
    columns_of,
)
from queue_core.errors import ConfigurationError
from queue_core.model.names import table_fault
from queue_core.runtime.arguments import not_allowed
from sql.dialect import Dialect
from sql.families import ENTRIES as ENTRY_TABLES
from sql.families import WORK_HISTORY
from sql.statements.ranges import Ranges
from sql.tables import entry_tables, work_task_history

_HISTORY = "_history"


@dataclass(frozen=True, eq=False)
class HistoryKind:
    """What an archive must know of the rows of a history.

    Attributes:
        rows: What the rows are called.
        columns: All columns, in order.
        queue: The column by which the rows of a file are sorted, before the id.
        payload: The columns of the payload, or of the value.
        error: The column with the text of an error.
        erased: The columns that are NULL after an erasure. Of an error, its type stays.
        shared: The history, if a database has it once. Otherwise each main table has its own.
    """

    rows: str
    columns: Sequence[ArchivedColumn]
    queue: str
    payload: tuple[str, ...]
    error: str
    erased: tuple[str, ...]
    shared: Table | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, in order."""
        return tuple(column.name for column in self.columns)

    def table(self, name: str) -> Table:
        """The table of a name: a history, or a main table."""
        if self.shared is not None:
            return self.shared
        main = name.removesuffix(_HISTORY)
        pair = entry_tables(main)
        return pair.main if name == main else pair.history

    def history(self, archived: str) -> Table:
        """The history whose archive has a name."""
        return self.table(f"{archived}{_HISTORY}")

    def archive_name(self, table: str) -> str:
        """The name of the archive of a table, or of its main table."""
        return table.removesuffix(_HISTORY) if self.shared is None else str(self.shared.name)

    def main_tables(self, archived: str) -> tuple[str, ...]:
        """The main tables that a database must have for an archive."""
        return (archived,) if self.shared is None else ()

    def statements(self, dialect: Dialect, archived: str) -> Ranges:
        """The statements on the history whose archive has a name."""
        if self.shared is None:
            return dialect.statements_for(ENTRY_TABLES)(entry_tables(archived))
        return dialect.statements_for(WORK_HISTORY)()


_VALUE = ("value_json", "value_bytes")
ENTRIES = HistoryKind(
    "entries",
    HISTORY_COLUMNS,
    "queue_name",
    PAYLOAD,
    "last_error",
    (*PAYLOAD, "user_token", "future_user_token", "search_key1", "search_key2", "headers"),
)
TASKS = HistoryKind(
    "tasks",
    columns_of(work_task_history),
    "queue",
    _VALUE,
    "err",
    _VALUE,
    shared=work_task_history,
)


def kind_of(table: str) -> HistoryKind:
    """The kind of a table, or of an archive, by its name."""
    return TASKS if table == work_task_history.name else ENTRIES


def check_table(table: str) -> None:
    """Raises ConfigurationError for what is neither a main table's name nor `work_task_history`."""
    if kind_of(table) is ENTRIES and table_fault(table):
        raise not_allowed("table", table, f"a main table's name, or {work_task_history.name}")


def check_entries(table: str, what: str) -> None:
    """Raises ConfigurationError for what is no main table's name, as the history of tasks.

    `what`: what needs entries.
    """
    kind = kind_of(table)
    if kind is not ENTRIES:
        raise ConfigurationError(
            f"table={table!r} is not allowed: it holds {kind.rows}, and {what} takes entries "
            "alone. Nothing was read or written.",
            key="table",
            value=table,
        )
    if fault := table_fault(table):
        raise not_allowed("table", table, fault)

"""Partitions of history on MySQL and MariaDB: parts of the one table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, Table, literal, select, text

from sql.partitions import FIRST, LAST, Partition, Partitions, Span
from sql.statements.base import full_name

_FOUND = text("""
SELECT PARTITION_NAME AS name, PARTITION_DESCRIPTION AS bound, TABLE_ROWS AS guessed
  FROM information_schema.PARTITIONS
 WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :name AND PARTITION_NAME IS NOT NULL
 ORDER BY PARTITION_ORDINAL_POSITION
""")
_NO_END = "VALUES LESS THAN (MAXVALUE)"


class MySQLPartitions(Partitions):
    """Divides a history by copying it: outcomes wait meanwhile."""

    supported = True

    def found(self, connection: Connection, past: Table) -> list[Partition]:
        """See `Partitions`."""
        rows = connection.execute(_FOUND, {"name": past.name})
        return [Partition(row.name, _until(row.bound), row.guessed or 0) for row in rows]

    def divide(self, connection: Connection, past: Table, wanted: Sequence[Span]) -> None:
        """See `Partitions`."""
        parts = ", ".join(
            [
                f"PARTITION p_{FIRST} VALUES LESS THAN ({_date(wanted[0].since)})",
                *map(_definition, wanted),
                f"PARTITION p_{LAST} {_NO_END}",
            ]
        )
        columns = "PARTITION BY RANGE COLUMNS (finished_date)"
        self._change(connection, past, f"{columns} ({parts})")

    def add(self, connection: Connection, past: Table, span: Span) -> None:
        """See `Partitions`."""
        parts = f"{_definition(span)}, PARTITION p_{LAST} {_NO_END}"
        self._change(connection, past, f"REORGANIZE PARTITION p_{LAST} INTO ({parts})")

    def rows(self, past: Table, partition: Partition) -> Select[Any]:
        """See `Partitions`."""
        return select(literal(1)).select_from(past).with_hint(past, f"PARTITION ({partition.name})")

    def drop(self, connection: Connection, past: Table, partition: Partition) -> None:
        """See `Partitions`."""
        self._change(connection, past, f"DROP PARTITION {partition.name}")

    def _change(self, connection: Connection, past: Table, change: str) -> None:
        with connection.begin():
            connection.exec_driver_sql(f"ALTER TABLE {full_name(connection, past)} {change}")


def _definition(span: Span) -> str:
    return f"PARTITION p_{span.stem} VALUES LESS THAN ({_date(span.until)})"


def _date(date: datetime) -> str:
    return f"'{date:%Y-%m-%d}'"


def _until(bound: str) -> datetime | None:
    """The end of a partition, as the catalogue writes it."""
    if bound == "MAXVALUE":
        return None
    return datetime.fromisoformat(bound.strip("'")).replace(tzinfo=UTC)

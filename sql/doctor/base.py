"""The questions to a database about its own state. Each database has a module of them.

Callers never ask which database it is.

A check only reads, takes no lock that anybody waits for, and reads a bounded number of rows or
counts that the server keeps anyway. It names the things that it may not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import URL, Connection, inspect

from sql.dialect import Dialect
from sql.doctor.finding import Finding
from sql.families import ENTRIES, NODES, table_names
from sql.statements.entries import Statements
from sql.statements.nodes import Nodes
from sql.tables import entry_tables


@dataclass(frozen=True)
class Scope:
    """The scope of an examination: main tables, as of `now` (UTC) by the database's clock.

    Transactions are reported when they are open for longer than `transaction_seconds`.
    """

    dialect: Dialect
    tables: tuple[str, ...]
    now: datetime
    transaction_seconds: float

    @property
    def names(self) -> list[str]:
        """The names of all our tables, histories and shared ones included."""
        return list(table_names(*self.tables))

    def statements(self) -> list[Statements]:
        """Our statements on each pair of tables."""
        kind = self.dialect.statements_for(ENTRIES)
        return [kind(entry_tables(table)) for table in self.tables]

    @property
    def nodes(self) -> Nodes:
        """Our statements on nodes."""
        return self.dialect.statements_for(NODES)()


Check = Callable[[Connection, Scope], Iterable[Finding]]
"""A check. Its name, with hyphens, is that of its findings, and of the check if it fails."""


class Step(StrEnum):
    """The steps of a plan that look nothing up by an index."""

    SCAN = "reads the whole table"
    WALK = "reads an index from its start"
    SORT = "sorts"


@dataclass(frozen=True)
class Fault:
    """A step of a plan that costs more as the table grows; `detail` in the database's words."""

    step: Step
    detail: str


@dataclass(frozen=True)
class ConnectionLimit:
    """The number of connections that `whose` may have, and the number of the open ones."""

    whose: str
    most: int
    used: int
    cure: str


@dataclass
class Keys:
    """The primary key of a table, and its other indices by name: columns in order."""

    primary: list[str] = field(default_factory=list)
    indices: dict[str, list[str]] = field(default_factory=dict)


class Doctor:
    """The questions to one kind of database."""

    explain = "EXPLAIN "
    """The words before a statement that make it tell its plan and run nothing."""
    checks: Sequence[Check] = ()
    """Questions that only this kind of database has."""

    def outside(self, url: URL, *, integrity: bool) -> Iterator[Finding]:
        """Findings from outside: our connections may not open for just the reason that is sought.

        `integrity`: read everything that is stored, too, and see that it is whole.
        """
        del url, integrity
        yield from ()

    def settle(self, connection: Connection) -> None:
        """Set a session up for these questions."""

    def keys(self, connection: Connection, tables: Sequence[str]) -> dict[str, Keys]:
        """The keys of each table."""
        inspector = inspect(connection)
        return {
            table: Keys(
                inspector.get_pk_constraint(table)["constrained_columns"],
                {
                    str(index["name"]): [*map(str, index["column_names"])]
                    for index in inspector.get_indexes(table)
                },
            )
            for table in tables
        }

    def faults(self, plan: Sequence[Mapping[str, Any]], table: str) -> Iterator[Fault]:
        """The faults of a plan, given by its rows, on one table."""
        raise NotImplementedError

    def connection_limits(self, connection: Connection) -> list[ConnectionLimit]:
        """All that limits the number of our connections."""
        del connection
        return []

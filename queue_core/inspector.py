"""A look at a database of queues.

It changes nothing.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sqlalchemy import URL
from sqlalchemy import Engine as SqlalchemyEngine

from queue_core.doctor.examination import examine
from queue_core.inspection.entries import InspectedEntries
from queue_core.inspection.groups import InspectedGroups
from queue_core.inspection.keys import InspectedKeys
from queue_core.inspection.nodes import InspectedNodes
from queue_core.inspection.queues import InspectedQueues
from queue_core.inspection.statistics import InspectedStatistics
from queue_core.opening import open_existing
from queue_core.runtime.arguments import is_number, not_allowed
from sql.doctor.finding import Finding


def inspect(
    database: str | URL | SqlalchemyEngine, *, statement_timeout_seconds: float = 30.0
) -> Inspector:
    """Open an inspector of a database; close it, or use it in a `with` block.

    Args:
        database: A URL, as a text or SQLAlchemy's, or an Engine, whose URL and way to connect are
            taken.
        statement_timeout_seconds: The longest that one statement may take, from 0.001 to 1,000,000.
            Default: 30.

    Returns:
        An inspector, which opens its own connections. It registers no node, and creates neither
        file nor table.

    Raises:
        ConfigurationError: An argument is not allowed.
        DatabaseUnreachableError: The database does not answer, or the SQLite file is not there.

    Example:
        ```python
        with stickybus.inspect("sqlite:///shop.db") as inspector:
            for queue in inspector.queues():
                print(queue.queue_name, queue.ready, queue.dead_letters)
        ```
    """
    seconds = _seconds(
        statement_timeout_seconds, "statement_timeout_seconds", least=0.001, most=1e6
    )
    return Inspector(open_existing(database, statement_timeout_seconds=seconds))


class Inspector(
    InspectedQueues,
    InspectedStatistics,
    InspectedEntries,
    InspectedKeys,
    InspectedGroups,
    InspectedNodes,
):
    """Reads of one database; `stickybus.inspect` makes it.

    A context manager that closes its connections. Each method reads in transactions that lock
    nothing, while the queues run.
    """

    def close(self) -> None:
        """Close its connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def tables(self) -> tuple[str, ...]:
        """List the main tables, each of which has its history.

        Returns:
            Their names, in order; empty if there are none.

        Raises:
            DatabaseUnreachableError: The database does not answer.
        """
        return self._tables.names()

    def doctor(self, *, transaction_seconds: float = 60.0) -> list[Finding]:
        """Find faults that slow or endanger the database, as `stickybus doctor` does.

        Args:
            transaction_seconds: Report transactions of others that are open for longer, from 0 to
                1e9 seconds. Default: 60.

        Returns:
            The findings, the worst first.

        Raises:
            ConfigurationError: The time is not allowed.
            DatabaseUnreachableError: The database does not answer.
        """
        seconds = _seconds(transaction_seconds, "transaction_seconds", least=0.0, most=1e9)
        return examine(self._database, transaction_seconds=seconds)

    def check_table(self, table: str | None = None) -> None:
        """Check that a main table is there.

        Args:
            table: Its name. Default: any.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        self._tables.named(table)


def _seconds(value: float, key: str, *, least: float, most: float) -> float:
    if not is_number(value) or not least <= value <= most:
        raise not_allowed(key, value, f"a number of seconds from {least:g} to {most:g}")
    return float(value)

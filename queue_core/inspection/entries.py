"""The entries of an inspected database."""

from __future__ import annotations

from typing import Unpack

from queue_core.inspection.inspected import Inspected
from queue_core.model.entry import Located
from queue_core.reading.explanation import Explanation, explain
from queue_core.reading.filters import FindFilters, HistoryFilters
from queue_core.reading.search import Search
from queue_core.storage.filter import Filter


class InspectedEntries(Inspected):
    """Single entries, live or ended."""

    def entries(
        self,
        *,
        table: str | None = None,
        queue_name: str | None = None,
        event_name: str | None = None,
        limit: int | None = None,
        **filters: Unpack[FindFilters],
    ) -> list[Located]:
        """Find live entries.

        Args:
            table: Only of this main table. Default: of all.
            queue_name: Only of this bus, or `service:queue`. Default: of all.
            event_name: Only events of this name. Default: of all.
            limit: At most this number, of all tables together. Default: all.
            filters: As for `PersistentBus.find`. Name a table with `record_ids`: ids are those
                of one table.

        Returns:
            The entries that match all that is given, by table and ascending id.

        Raises:
            InvalidPostError: A value that no entry can have.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        search = Search(
            Filter(**filters), queue_name=queue_name, event_name=event_name, limit=limit
        )
        return search.live(self._tables.stores(table))

    def history(
        self,
        *,
        table: str | None = None,
        queue_name: str | None = None,
        event_name: str | None = None,
        dead_letters: bool = False,
        limit: int | None = None,
        **filters: Unpack[HistoryFilters],
    ) -> list[Located]:
        """Find entries that have ended.

        Args:
            table: Only of this main table's history. Default: of all.
            queue_name: Only of this bus, or `service:queue`. Default: of all.
            event_name: Only events of this name. Default: of all.
            dead_letters: Only those that `QueueStatus.dead_letters` counts. Default: False.
            limit: At most this number, of all tables together. Default: all.
            filters: As for `PersistentBus.history`. Name a table with `record_ids`: ids are
                those of one table.

        Returns:
            The entries that match all that is given. Those of one table by descending id, those of
            all tables newest first.

        Raises:
            InvalidPostError: A value that no entry can have.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        search = Search(
            Filter(**filters), queue_name=queue_name, event_name=event_name, limit=limit
        )
        return search.ended(
            self._tables.stores(table), dead_letters=dead_letters, by_date=table is None
        )

    def explain(self, record_id: int, *, table: str) -> Explanation:
        """Tell why an entry is not running: a pause, an entry that it waits for, and so on.

        Args:
            record_id: The id of the entry, live or ended.
            table: Its main table: ids are those of one table.

        Returns:
            All reasons that stand in the tables; as a text, a line for each. An entry that runs, or
            has ended, has one that says so.

        Raises:
            EntryNotFoundError: The table has no such entry, neither live nor in history.
            InvalidPostError: The id can't be one.
            SchemaMissingError: There is no such table.
            DatabaseUnreachableError: The database does not answer.
        """
        [store] = self._tables.stores(table)
        return explain(store, record_id)

"""The groups of an inspected database."""

from __future__ import annotations

from contextlib import suppress

from queue_core.errors import GroupNotFoundError
from queue_core.inspection.inspected import Inspected
from queue_core.model.group import GroupStatus
from queue_core.storage.arguments import storable_integer, storable_name
from queue_core.storage.groups import StoredGroups, not_found
from sql.tables import QUEUE_NAME_LENGTH


class InspectedGroups(Inspected):
    """Groups of entries."""

    def groups(
        self,
        *,
        table: str | None = None,
        queue_name: str | None = None,
        incomplete: bool = False,
        limit: int | None = None,
    ) -> list[GroupStatus]:
        """List groups of entries.

        Args:
            table: Only of this main table. Default: of all.
            queue_name: Only those that were opened on this queue. Default: on all.
            incomplete: Only those that are not complete. Default: all.
            limit: At most this number of a table. Default: all.

        Returns:
            The groups, by table, the newest first.

        Raises:
            InvalidPostError: A queue's name can't be one, or `limit` is no number.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.

        Example:
            ```python
            for group in inspector.groups(incomplete=True):
                print(group.group_id, group.name, group.live)
            ```
        """
        limit = None if limit is None else storable_integer(limit, "limit", least=0)
        if queue_name is not None:
            queue_name = storable_name(queue_name, "queue_name", limit=QUEUE_NAME_LENGTH)
        return [
            status
            for store in self._tables.stores(table)
            for status in StoredGroups(store).newest(
                queue_name=queue_name, incomplete=incomplete, limit=limit
            )
        ]

    def group_status(self, group: int, *, table: str | None = None) -> GroupStatus:
        """Tell where a group stands.

        Args:
            group: Its id.
            table: Its main table. Default: any.

        Returns:
            The state of the group.

        Raises:
            GroupNotFoundError: There is no such group.
            InvalidPostError: `group` can't be an id.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        group_id = storable_integer(group, "group", least=1)
        stores = self._tables.stores(table)
        for store in stores:
            with suppress(GroupNotFoundError):
                return StoredGroups(store).status(group_id)
        tables = " and ".join(store.config.table for store in stores)
        raise not_found(group_id, tables=tables)

"""The keys of an inspected database."""

from __future__ import annotations

from queue_core.inspection.inspected import Inspected
from queue_core.model.keyed import KeyState, KeyStatus
from queue_core.reading.held_keys import HeldKey, held_keys
from queue_core.reading.keys import Keys
from queue_core.storage.arguments import storable_integer


class InspectedKeys(Inspected):
    """Idempotency keys, and order keys that are held."""

    def keys(
        self, *, table: str | None = None, queue_name: str | None = None, limit: int | None = None
    ) -> list[KeyStatus]:
        """List the idempotency keys that are taken.

        Args:
            table: Only of this main table. Default: of all.
            queue_name: Only of this queue. Default: of all.
            limit: At most this number of a table. Default: all.

        Returns:
            The states of the key; by table, queue and key.

        Raises:
            InvalidPostError: A value that no key can have.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        limit = None if limit is None else storable_integer(limit, "limit", least=0)
        return [
            status
            for store in self._tables.stores(table)
            for status in Keys(store).all_keys(queue_name, limit)
        ]

    def key_status(self, queue_name: str, key: str, *, table: str | None = None) -> KeyStatus:
        """Tell where a key stands.

        Args:
            queue_name: The name of the bus, or "service:queue".
            key: The key.
            table: The main table of the queue. Default: the first one that knows the key.

        Returns:
            Its entry and its time; the state is UNKNOWN if nobody has the key.

        Raises:
            InvalidPostError: A value that no key can have.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        found = [Keys(store).status(queue_name, key) for store in self._tables.stores(table)]
        return next((one for one in found if one.state is not KeyState.UNKNOWN), found[0])

    def held_keys(self, *, table: str | None = None) -> list[HeldKey]:
        """List the order keys whose entries wait because one of them has failed.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The keys, by table, queue and name.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.

        Example:
            ```python
            for key in inspector.held_keys():
                print(key.order_key, key.record_id, key.waiting)
            ```
        """
        return [key for store in self._tables.stores(table) for key in held_keys(store, None)]

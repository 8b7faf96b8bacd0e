"""One post of entries of which some have links."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection
from sqlalchemy.util import memoized_property

from queue_core.storage.store import Store


@dataclass(frozen=True)
class LinkedPost:
    """The facts that the kinds of links share while it is written.

    Attributes:
        store: The tables in which it is written.
        connection: Of the transaction in which it is written.
        queue_name: The queue of its entries.
        lent: Whether the connection is the caller's.
    """

    store: Store
    connection: Connection
    queue_name: str
    lent: bool

    def reserve(self, count: int) -> list[int]:
        """Ids of entries that are to be inserted, ascending."""
        ids = list[int]()
        if not self.lent:  # the process may have taken them with a former post
            ids, _ = self.store.reserved_ids.take(count, self.connection)
        return ids or self.store.statements.reserve(self.connection, count)

    @memoized_property
    def may_be_blind(self) -> bool:
        """Whether the caller's transaction may not see later commits of others."""
        return self.lent and not self.store.database.dialect.capabilities.one_writer

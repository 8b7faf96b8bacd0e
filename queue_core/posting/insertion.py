"""The insertion of one post's rows in a transaction of the library's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection

from queue_core.holding.ledger import Ledger
from queue_core.model.transit import Transit
from queue_core.storage.reserved_ids import OutdatedIdsError
from queue_core.storage.store import Store


class Insertion(msgspec.Struct, eq=False):
    """Rows of one post. `claimed`: they are born claimed, so the ledger is to hold them.

    Ids of claimed rows enter the ledger before the COMMIT: the sweep may see the rows after it. An
    exception may cut it off anywhere; `transit` and `written` tell then how far it has come.
    """

    store: Store
    ledger: Ledger
    rows: Sequence[dict[str, Any]]
    claimed: bool
    transit: Transit = msgspec.field(default_factory=Transit)
    """The ledger's claims of it."""
    written: list[int] = []
    """The ids that a COMMIT without answer may have written."""

    def commit(self) -> list[int]:
        """Insert and commit the rows, and return their ids in order.

        Raises any error of the database; nothing is held then.
        """
        database, reserved = self.store.database, self.store.reserved_ids
        try:
            if not self.claimed:
                at_once = self.store.statements.capabilities.inserts_at_once
                if at_once or len(self.rows) == 1:
                    return database.insert_autocommit(self._insert)
                return database.write(self._insert, self._forget)
            # A claimed row must not be seen before its id is known.
            ids, opened = reserved.take(len(self.rows))
            if ids:
                try:
                    return self._commit_with(ids, opened)
                except OutdatedIdsError:
                    self._forget()
                    reserved.clear()
                    self._remove_ids()
            return database.write(self._insert_and_hold, self._forget)
        except BaseException:
            # Whether a failed COMMIT took effect is for the sweep to find out.
            self._forget()
            reserved.clear()
            raise

    def _commit_with(self, ids: list[int], opened: int) -> list[int]:
        """Insert the rows with ids that were reserved when `opened` connections had been opened."""
        self._hold(ids)
        self.written[:] = ids
        for row, record_id in zip(self.rows, ids, strict=True):
            row["record_id"] = record_id
        database = self.store.database

        def insert(connection: Connection) -> list[int]:
            if database.opened != opened:
                raise OutdatedIdsError
            return self._insert(connection)

        return database.insert_autocommit(insert)

    def _insert(self, connection: Connection) -> list[int]:
        self.written[:] = ids = self.store.insert(connection, self.rows)
        return ids

    def _insert_and_hold(self, connection: Connection) -> list[int]:
        ids = self._insert(connection)
        self._hold(ids)
        return ids

    def _hold(self, ids: list[int]) -> None:
        self.transit.held[:] = ids  # first, for `_forget` to know them
        self.ledger.add((record_id, 1) for record_id in ids)

    def _forget(self) -> None:
        # Once: on SQLite, ids that were rolled back may be another post's by now.
        self.ledger.discard(self.transit.held)
        self.transit.held.clear()

    def _remove_ids(self) -> None:
        self.written.clear()
        for row in self.rows:
            del row["record_id"]

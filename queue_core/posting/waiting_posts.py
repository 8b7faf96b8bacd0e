"""Postings that wait for other entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from sqlalchemy import Connection

from queue_core.errors import EntryNotFoundError, InvalidPostError
from queue_core.model.entry import OnFailed, Posting
from queue_core.model.lanes import Lane
from queue_core.runtime.shown import shown
from queue_core.storage.rows import integer
from queue_core.storage.store import Store
from sql.statements.waits import Wait

MOST = 1_000
"""The most entries that one waits for."""


class WaitingPosts:
    """What the entries of one post wait for. Raises InvalidPostError."""

    def __init__(self, store: Store, queue_name: str, postings: Sequence[Posting]) -> None:
        self._store = store
        self._queue_name = queue_name
        self._postings = postings
        self._awaited = [_awaited(queue_name, posting) for posting in postings]
        self._new: list[int] = []

    def check(self, connection: Connection, *, lent: bool) -> None:
        """Raise EntryNotFoundError unless all awaited entries exist.

        `lent`: the connection is the caller's, whose transaction may not see the newest ones.
        """
        sought = sorted({record_id for ids in self._awaited for record_id in ids})
        if not sought:
            return
        missing = self._missing(connection, sought)
        if missing and lent and not self._store.database.dialect.capabilities.one_writer:
            missing = self._store.database.fetch(lambda ours: self._missing(ours, missing))
        if missing:
            raise EntryNotFoundError(
                f"{self._queue_name}: after names entries that are neither live nor in history: "
                f"{', '.join(map(str, missing[:20]))}. Nothing was written.",
                queue_name=self._queue_name,
                table=self._store.config.table,
                record_id=missing[0],
                record_ids=missing,
            )

    def _missing(self, connection: Connection, ids: Sequence[int]) -> list[int]:
        statements = self._store.statements
        live = statements.live_ids(connection, ids=ids)
        others = [record_id for record_id in ids if record_id not in live]
        # In this order: an entry that ends in between is in history by then.
        past = statements.ended_ids(connection, ids=others) if others else set[int]()
        return [record_id for record_id in others if record_id not in past]

    def enter(self, connection: Connection, ids: Sequence[int], lanes: Sequence[Lane]) -> None:
        """Enter what the new entries, whose ids are `ids`, wait for."""
        waits, on_failed = list[Wait](), dict[int, str]()
        for record_id, posting, awaited in zip(ids, self._postings, self._awaited, strict=True):
            if awaited:
                waits += [Wait(record_id, awaited_id) for awaited_id in awaited]
                on_failed[record_id] = posting.on_failed
        self._new = list(on_failed)
        if waits:
            self._store.dependencies.enter(
                connection, waits, on_failed=on_failed, lanes=dict(zip(ids, lanes, strict=True))
            )

    def attend(self, connection: Connection) -> bool:
        """Decide about the new entries in this transaction; False if there are none."""
        if self._new:
            dependencies = self._store.dependencies
            dependencies.attend(connection, dependencies.waits_of(connection, self._new))
        return bool(self._new)


def _awaited(queue_name: str, posting: Posting) -> list[int]:
    given = posting.after
    if given is None:
        return []
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise _refused(queue_name, "after", given, f"a collection of up to {MOST} record ids")
    ids = sorted({integer(record_id, "after") for record_id in given})
    if len(ids) > MOST:
        raise _refused(queue_name, "after", f"{len(ids)} ids", f"up to {MOST} ids")
    if posting.on_failed not in get_args(OnFailed):
        raise _refused(queue_name, "on_failed", posting.on_failed, "cancel, run or hold")
    if ids and posting.order_key is not None:
        raise _refused(queue_name, "after", ids, "entries without an order_key")
    return ids


def _refused(queue_name: str, key: str, value: object, allowed: str) -> InvalidPostError:
    return InvalidPostError(
        f"{queue_name}: {key}={shown(value)} is not allowed. Allowed: {allowed}. Nothing was written.",
        queue_name=queue_name,
        key=key,
        value=shown(value),
    )

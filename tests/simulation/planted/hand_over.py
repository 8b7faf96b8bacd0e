"""Bugs of the hand-over from posts to handlers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from queue_core.model.posting import Posting
from queue_core.model.transit import Transit
from queue_core.posting.announced_commits import AnnouncedCommits
from queue_core.posting.poster import Post, Poster
from queue_core.storage.store import Store
from tests.simulation.planted.bugs import Planting, bug


@bug
def signal_before_commit() -> list[Planting]:
    """An own post is handed over before its COMMIT."""
    post: Any = Poster.post

    def early(
        self: Poster, queue_name: str, postings: Sequence[Posting], connection: Any = None
    ) -> list[int]:
        holdings, store = self._holdings, self._store
        epoch = holdings.epoch
        rows, claimed = self._rows(Post(queue_name, postings, None), may_claim=True)
        if connection is not None or not claimed:
            return list(post(self, queue_name, postings, connection))

        def work(connection: Connection) -> list[int]:
            ids = store.insert(connection, rows)
            holdings.ledger.add((record_id, 1) for record_id in ids)
            entries = [
                store.rows.entry(record_id, row) for record_id, row in zip(ids, rows, strict=True)
            ]
            self._hand_over.submit(entries, epoch, Transit())
            return ids

        return store.database.write(work)

    return [(Poster, "post", early)]


@bug
def hand_over_on_the_commit_event() -> list[Planting]:
    """A caller's transaction counts as committed when its end is announced."""
    inserted = dict[int, dict[str, Any]]()
    insert: Any = Store.insert

    def remembering(
        self: Store, connection: Connection, rows: Sequence[dict[str, Any]], hint: Any = None
    ) -> list[int]:
        ids = list[int](insert(self, connection, rows, hint))
        inserted.update(zip(ids, rows, strict=True))
        return ids

    def add(self: AnnouncedCommits, ids: list[int]) -> None:
        holdings = self._holdings
        holdings.ledger.add((record_id, 1) for record_id in ids)
        entries = [holdings.store.rows.entry(record_id, inserted[record_id]) for record_id in ids]
        self._hand_over.submit(entries, holdings.epoch, Transit())

    return [(Store, "insert", remembering), (AnnouncedCommits, "add", add)]

"""Postings that wait for other entries."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import get_args

from sqlalchemy import Connection

from queue_core.errors import EntryNotFoundError
from queue_core.model.lanes import WAITING_LANE, Lane
from queue_core.model.posting import Awaited, OnFailed, Posting
from queue_core.model.refusal import refused
from queue_core.model.states import State
from queue_core.posting.draft import Draft
from queue_core.posting.linked_post import LinkedPost
from queue_core.runtime.exact import exact_text
from queue_core.runtime.shown import shown
from queue_core.storage.arguments import storable_integer, storable_name
from sql.statements.waits import Wait
from sql.tables import KEY_LENGTH, QUEUE_NAME_LENGTH

MOST = 1_000
"""The most entries that one waits for."""

FATES = get_args(OnFailed)


class WaitingPosts:
    """The waits of the entries of one post, in one transaction: `before` the insertion, and after.

    A caller's transaction may not see the newest entries.
    """

    def __init__(self, post: LinkedPost, drafts: Sequence[Draft]) -> None:
        self._post = post
        self._after = [(draft, draft.posting.after) for draft in drafts if draft.posting.after]
        self._waiting = list[tuple[Draft, list[int], Lane]]()
        """With the ids that drafts wait for, and the lanes that they go to in the end."""
        self._ends = dict[int, str]()
        """How entries have ended, as far as their keys tell. They may have left no row."""

    def before(self) -> None:
        """Raise EntryNotFoundError unless all awaited entries exist; let the rows wait."""
        if not self._after:
            return
        named = self._named({one for _, awaited in self._after for one in awaited})
        for draft, awaited in self._after:
            ids = sorted({one if isinstance(one, int) else named[one] for one in awaited})
            self._waiting.append((draft, ids, Lane(draft.row["lane"])))
        sought = sorted({record_id for _, ids, _ in self._waiting for record_id in ids})
        missing = self._missing(self._post.connection, sought)
        if missing and self._post.may_be_blind:
            missing = self._post.store.database.fetch(lambda ours: self._missing(ours, missing))
        self._ends = {one: self._ends[one] for one in missing if one in self._ends}
        missing = [one for one in missing if one not in self._ends]
        if missing:
            raise EntryNotFoundError(
                f"{self._post.queue_name}: after names entries that are neither live nor in "
                f"history: {', '.join(map(str, missing[:20]))}. Nothing was written.",
                queue_name=self._post.queue_name,
                table=self._post.store.config.table,
                record_id=missing[0],
                record_ids=missing,
            )
        for draft, _, _ in self._waiting:
            waits = {"lane": WAITING_LANE, "processing_state": State.WAITING.value}
            draft.row = {**draft.row, **waits}

    def _named(self, awaited: Collection[Awaited]) -> dict[tuple[str, str], int]:
        """The entries that the keys among `awaited` name. Raises EntryNotFoundError."""
        keys = {one for one in awaited if not isinstance(one, int)}
        found = self._having(self._post.connection, keys)
        if keys - found.keys() and self._post.may_be_blind:
            others = keys - found.keys()
            found |= self._post.store.database.fetch(lambda ours: self._having(ours, others))
        if missing := sorted(keys - found.keys()):
            raise EntryNotFoundError(
                f"{self._post.queue_name}: after names keys that no entry has: "
                f"{', '.join(map(shown, missing[:20]))}. Nothing was written.",
                queue_name=self._post.queue_name,
                table=self._post.store.config.table,
            )
        return found

    def _having(
        self, connection: Connection, keys: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], int]:
        """The ids of the entries that keys name now; keys that name none are left out."""
        link, found = self._post.store.keys, dict[tuple[str, str], int]()
        for queue_name in sorted({queue_name for queue_name, _ in keys}):
            mine = [key for of_queue, key in keys if of_queue == queue_name]
            for row in link.keys.find(connection, link.table_name, queue_name, keys=mine):
                if row.record_id:
                    found[queue_name, row.entry_key] = row.record_id
                    if row.ended_state:
                        self._ends[row.record_id] = row.ended_state
        return found

    def _missing(self, connection: Connection, ids: Sequence[int]) -> list[int]:
        statements = self._post.store.statements
        live = statements.live_ids(connection, ids=ids)
        others = [record_id for record_id in ids if record_id not in live]
        # In this order: an entry that ends in between is in history by then.
        past = statements.ended_ids(connection, ids=others) if others else set[int]()
        return [record_id for record_id in others if record_id not in past]

    def after(self) -> None:
        """Enter the inserted entries, and decide about them unless the connection is lent."""
        if not self._waiting:
            return
        waits, on_failed, lanes = list[Wait](), dict[int, str](), dict[int, str]()
        for draft, awaited, lane in self._waiting:
            record_id = draft.record_id
            waits += [Wait(record_id, awaited_id) for awaited_id in awaited]
            on_failed[record_id], lanes[record_id] = draft.posting.on_failed, lane
        dependencies = self._post.store.dependencies
        dependencies.enter(
            self._post.connection, waits, on_failed=on_failed, lanes=lanes, ends=self._ends
        )
        if not self._post.lent:
            rows = dependencies.waits_of(self._post.connection, list(on_failed))
            dependencies.attend(self._post.connection, rows)


def awaited_by(queue_name: str, posting: Posting) -> frozenset[Awaited] | None:
    """The entries that a post waits for, None if it names none. Raises InvalidPostError."""
    if exact_text(posting.on_failed) not in FATES:
        raise refused(queue_name, "on_failed", posting.on_failed, "cancel, run or hold")
    given = posting.after
    if given is None:
        return None
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise refused(queue_name, "after", given, f"a collection of up to {MOST} entries")
    ids = frozenset(_checked(queue_name, one) for one in given)
    if len(ids) > MOST:
        raise refused(queue_name, "after", f"{len(ids)} ids", f"up to {MOST} ids")
    if ids and posting.key is not None and posting.on_conflict not in {"return", "raise"}:
        # Another entry would run with the posted payload, and it does not wait for these.
        raise refused(queue_name, "on_conflict", posting.on_conflict, "return or raise, with after")
    return ids


def _checked(queue_name: str, awaited: object) -> Awaited:
    if not isinstance(awaited, tuple | str):
        return storable_integer(awaited, "after")
    match awaited:
        case (str() as of_queue, str() as key):
            of_queue = storable_name(of_queue, "queue_name", limit=QUEUE_NAME_LENGTH)
            return of_queue, storable_name(key, "key", limit=KEY_LENGTH, queue_name=queue_name)
    raise refused(
        queue_name, "after", awaited, "a list of ids, and of pairs of a queue's name and a key"
    )

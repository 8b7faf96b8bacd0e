"""Posts with idempotency keys: which of them find their key taken, and what becomes of these.

A key that is seen to be taken, by an entry that stays as it is, is not locked: whoever ends that
entry goes on, though the caller's transaction stays open. All others are locked, in their order: by
their insertion where nobody has them, which waits for transactions that have just taken one. An
entry that waits is locked with its key where the post relies on its not having begun. It does not
begin then before the caller's transaction has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError

from queue_core.errors import DuplicateKeyError, InvalidPostError, KeyLockedError
from queue_core.links.keys import KEY_MARK, LOOK_SECONDS, WAITING, Following, Hold, later
from queue_core.model.entry import Posting
from queue_core.model.keyed import Answer, Keep, KeyState, Posted
from queue_core.model.run_limit import LIMIT_MARK
from queue_core.posting.draft import Draft
from queue_core.runtime.arguments import is_number
from queue_core.runtime.shown import shown
from queue_core.storage.rows import name
from queue_core.storage.store import Store
from sql.search_keys import marks_of, with_marks
from sql.statements.keys import PERIOD, KeyRow
from sql.tables import KEY_LENGTH

KEY_WAIT_SECONDS = 5.0
"""How long a post waits for other transactions that have taken its key, unless it says so."""

TRIES = 100
"""How often a key is taken that another's end frees at the same moment."""

KEEPS = ("waiting", "living", "forever")
CONFLICTS = ("return", "raise", "replace", "requeue", "debounce")

_ANSWERS = {
    KeyState.QUEUED: Answer.ALREADY_QUEUED,
    KeyState.IN_BACK_OFF: Answer.IN_BACK_OFF,
    KeyState.LOCKED: Answer.LOCKED,
    KeyState.LOCKED_WITH_REQUEUE: Answer.LOCKED,
    KeyState.DONE: Answer.DONE,
    KeyState.DONE_WITH_REQUEUE: Answer.DONE,
}
_REPLACED = (
    "class_name",
    "event_json",
    "event_bytes",
    "codec",
    "user_token",
    "future_user_token",
    "search_key1",
    "search_key2",
    "effective_date",
)


def check_keys(queue_name: str, postings: Sequence[Posting]) -> None:
    """Check what a post says of keys. Raises InvalidPostError."""
    for posting in postings:
        if posting.key is None:
            continue
        name(posting.key, "key", limit=KEY_LENGTH, queue_name=queue_name)
        keep = posting.keep
        if isinstance(keep, timedelta):
            if keep < timedelta():
                raise _refused(queue_name, "keep", keep, "a time that is not negative")
        elif keep not in KEEPS:
            raise _refused(queue_name, "keep", keep, f"{', '.join(KEEPS)}, or a timedelta")
        if posting.on_conflict not in CONFLICTS:
            raise _refused(queue_name, "on_conflict", posting.on_conflict, ", ".join(CONFLICTS))
        wait = posting.key_wait
        if wait is not None and not (is_number(wait) and wait >= 0):
            raise _refused(queue_name, "key_wait", wait, "seconds, 0 or more")


def _refused(queue_name: str, key: str, value: object, allowed: str) -> InvalidPostError:
    return InvalidPostError(
        f"{queue_name}: {key}={shown(value)} is not allowed. Allowed: {allowed}. Nothing was written.",
        queue_name=queue_name,
        key=key,
        value=shown(value),
    )


class KeyedPosts:
    """The keys of one post, in one transaction: `before` the insertion of its entries, and after.

    `lent`: the connection is the caller's. Its transaction may not see what others have committed.
    """

    def __init__(
        self,
        store: Store,
        connection: Connection,
        queue_name: str,
        drafts: Sequence[Draft],
        *,
        lent: bool,
    ) -> None:
        self._store = store
        self._keys, self._link = store.keys.keys, store.keys
        self._connection = connection
        self._queue_name = queue_name
        self._drafts = drafts
        self._lent = lent and not store.database.dialect.capabilities.one_writer
        hurries = any(draft.posting.key_wait == 0 for draft in drafts)
        self._makes = (lent or hurries) and store.database.dialect.capabilities.waiters_deadlock
        """Whether keys are entered by a transaction apart."""
        self._by_key = dict[str, list[Draft]]()
        for draft in drafts:
            if draft.posting.key is not None:
                self._by_key.setdefault(draft.posting.key, []).append(draft)
        self._taken_by = uuid4().hex
        self._complete = set[str]()
        """Keys that were taken with all that belongs to them."""
        self._new = dict[str, Draft]()
        """By key, the draft whose entry has it from now on."""
        self._ids_ahead = store.statements.capabilities.inserts_at_once
        """Whether a key is taken with the id of its entry; else the id is written afterwards."""
        self._headers = dict[int, str | None]()
        """Of entries that wait, and are locked."""
        self._same = list[tuple[Draft, str, Answer]]()
        """Drafts whose answer is such an entry."""

    # -- before the insertion ---------------------------------------------------------------------

    def before(self) -> None:
        """Find out which keys are taken. Drafts that find theirs taken are not to be inserted.

        Raises DuplicateKeyError or KeyLockedError.
        """
        if not self._by_key:
            return
        keys = sorted(self._by_key)
        holds: dict[str, Hold] = self._seen(keys)
        wanted = [key for key in keys if self._needs_lock(key, holds.get(key))]
        if self._ids_ahead:
            self._give_ids({None, *wanted})
        if wanted:
            there = [key for key in wanted if holds.pop(key, None) is not None]
            holds |= self._locked(wanted, there)
        for key in keys:
            for draft in self._by_key[key]:
                self._settle(key, draft, holds.get(key))

    def _give_ids(self, keys: Collection[str | None]) -> None:
        """Give drafts with one of these keys, or without (None), an id ahead."""
        drafts = [draft for draft in self._drafts if draft.posting.key in keys]
        if drafts:
            ids = self._store.statements.reserve(self._connection, len(drafts))
            for draft, record_id in zip(drafts, ids, strict=True):
                draft.row = {"record_id": record_id, **draft.row}

    def _seen(self, keys: Sequence[str]) -> dict[str, Hold]:
        """Where those keys stand that somebody has, by what others have committed."""

        def read(connection: Connection) -> dict[str, Hold]:
            rows = self._keys.find(connection, self._link.table_name, self._queue_name, keys=keys)
            return self._link.holds(connection, rows)

        if self._lent:
            return self._store.reaching(partial(self._store.database.fetch, read))
        return read(self._connection)

    def _needs_lock(self, key: str, hold: Hold | None) -> bool:
        """Whether a post may take the key, or change what it stands for."""
        if hold is None or not hold.held:
            return True
        if hold.keep == WAITING and self._lent:
            return True
        for draft in self._by_key[key]:
            match draft.posting.on_conflict:
                case "replace" if hold.waits:
                    return True
                case "debounce" if hold.waits or hold.runs:
                    return True
                case "requeue" if not hold.waits:
                    return True
        return False

    def _locked(self, keys: Sequence[str], there: Sequence[str]) -> dict[str, Hold]:
        """Lock keys, and return where those stand that this post has not taken.

        `there`: those of them that somebody had.
        """
        with self._waiting(keys):
            rows = self._taken(keys, there)
        others = [row for row in rows if row.taken_by != self._taken_by]
        if not others:
            return {}
        if self._lent:
            read = partial(self._link.holds, rows=others, besides=self._connection)
            holds = self._store.reaching(partial(self._store.database.fetch, read))
        else:
            holds = self._link.holds(self._connection, others)
        relied = {
            hold.record_id: hold
            for key, hold in holds.items()
            if hold.waits and self._relies(key, hold)
        }
        if relied:
            main = self._store.statements.main
            waiting = self._keys.lock_waiting(self._connection, main, ids=list(relied))
            self._headers |= {record_id: row.headers for record_id, row in waiting.items()}
            for record_id, hold in relied.items():
                if record_id not in waiting:
                    hold.has_started()
        return holds

    def _relies(self, key: str, hold: Hold) -> bool:
        """Whether the post relies on an entry's not having begun."""
        return hold.keep == WAITING or any(
            draft.posting.on_conflict in {"replace", "debounce"} for draft in self._by_key[key]
        )

    def _taken(self, keys: Sequence[str], there: Sequence[str]) -> list[Row[Any]]:
        """The rows of keys, all locked. Those that nobody had are taken by this post.

        Rows that are `there` are locked first: an INSERT that finds them would lock the gaps
        before them as well, on InnoDB in REPEATABLE READ, and others could take no keys there.
        """
        table_name = self._link.table_name
        if self._makes:
            self._make([key for key in keys if key not in set(there)])
            there = keys
        rows = self._keys.find(
            self._connection,
            table_name,
            self._queue_name,
            keys=there,
            lock=True,
            nowait=self._makes and not self._seconds(keys),
        )
        found = {row.entry_key: row for row in rows}
        if self._makes and len(found) < len(keys):  # deleted this moment, since nobody had them
            raise self._key_locked(keys)
        for _ in range(TRIES):
            missing = [key for key in keys if key not in found]
            if not missing:
                break
            added = self._keys.add(
                self._connection,
                table_name,
                self._queue_name,
                rows=[self._row(key, self._by_key[key][0]) for key in missing],
                taken_by=self._taken_by,
                look=self._look,
            )
            if added is None:
                self._complete |= set(missing) if self._ids_ahead else set()
                break
            # A key that was there is not, if its entry has ended meanwhile.
            found |= {row.entry_key: row for row in added}
        else:
            raise self._key_locked(keys)
        self._complete |= {
            key for key, row in found.items() if row.taken_by == self._taken_by and row.record_id
        }
        return list(found.values())

    @property
    def _look(self) -> datetime:
        """When keys that are kept for a time are to be looked after first."""
        last = max(draft.row["effective_date"] for draft in self._drafts)
        return later(last, LOOK_SECONDS)

    def _row(self, key: str, draft: Draft) -> KeyRow:
        """A key as it belongs to the draft's entry."""
        record_id = draft.row.get("record_id") if draft.answer is None else draft.answer
        return KeyRow(key, record_id, *_kept(draft.posting.keep))

    def _make(self, keys: Sequence[str]) -> None:
        """Commit rows of keys that nobody has, to be locked then.

        On InnoDB, of those who wait for a row that is being inserted, all but one are rolled back
        if that is. Those who wait for the lock of a row that is there get it one by one.
        """
        store = self._store

        def make(own: Connection) -> None:
            self._keys.make(
                own,
                self._link.table_name,
                self._queue_name,
                keys=keys,
                taken_by=self._taken_by,
                look=later(store.clock.now(), LOOK_SECONDS),
            )

        if keys:
            store.reaching(partial(store.database.write, make))

    def _seconds(self, keys: Sequence[str]) -> float:
        """How long the post may wait for others' transactions."""
        given = [
            draft.posting.key_wait
            for key in keys
            for draft in self._by_key[key]
            if draft.posting.key_wait is not None
        ]
        return max(given, default=KEY_WAIT_SECONDS)

    @contextmanager
    def _waiting(self, keys: Sequence[str]) -> Iterator[None]:
        """Wait for others' transactions no longer than was asked for."""
        dialect = self._store.database.dialect
        try:
            with dialect.lock_waits(self._connection, self._seconds(keys)):
                yield
        except DBAPIError as error:
            if not dialect.is_lock_refusal(error):
                raise
            error.hide_parameters = True
            raise self._key_locked(keys) from error

    def _key_locked(self, keys: Sequence[str]) -> KeyLockedError:
        which = f"the key {shown(keys[0])}" if len(keys) == 1 else f"one of {len(keys)} keys"
        return KeyLockedError(
            f"{self._queue_name}: another transaction, which is still open, has taken {which}. Nothing was "
            "written. Post again, or wait longer with key_wait.",
            queue_name=self._queue_name,
            key=keys[0] if len(keys) == 1 else None,
        )

    # -- one draft --------------------------------------------------------------------------------

    def _settle(self, key: str, draft: Draft, hold: Hold | None) -> None:
        first = self._new.get(key)
        if first is not None:
            self._repeat(key, draft, first)
            return
        if hold is None or not hold.held:
            self._gain(key, draft)
            return
        match draft.posting.on_conflict:
            case "raise":
                raise self._duplicate(key, hold.record_id, _ANSWERS[hold.state])
            case "replace" | "debounce" if hold.waits:
                self._replace(draft, hold)
            case "debounce" if hold.runs:
                self._gain(key, draft)
            case "requeue" if hold.runs:
                self._requeue(key, draft)
                self._answer(draft, Posted(hold.record_id, Answer.LOCKED))
            case "requeue" if not hold.waits:
                self._gain(key, draft)
            case _:
                self._answer(draft, Posted(hold.record_id, _ANSWERS[hold.state]))

    def _answer(self, draft: Draft, answer: Posted) -> None:
        draft.inserts, draft.answer = False, answer

    def _gain(self, key: str, draft: Draft) -> None:
        """The draft's entry is to have the key."""
        draft.row = {**draft.row, "headers": with_marks(draft.row["headers"], {KEY_MARK: key})}
        self._new[key] = draft

    def _repeat(self, key: str, draft: Draft, first: Draft) -> None:
        """Settle a draft whose key an earlier one of the same post has."""
        draft.inserts, answer = False, Answer.ALREADY_QUEUED
        match draft.posting.on_conflict:
            case "raise":
                raise self._duplicate(key, None, answer)
            case "replace" | "debounce":
                answer = Answer.UPDATED
                headers = with_marks(draft.row["headers"], {KEY_MARK: key})
                changes = {name: draft.row[name] for name in _REPLACED}
                first.row = {**first.row, **changes, "headers": headers}
        self._same.append((draft, key, answer))

    def _duplicate(self, key: str, record_id: int | None, answer: Answer) -> DuplicateKeyError:
        who = "an earlier one of the same post" if record_id is None else f"entry {record_id}"
        return DuplicateKeyError(
            f"{self._queue_name}: the key {shown(key)} belongs to {who} ({answer.value}). Nothing was written.",
            queue_name=self._queue_name,
            key=key,
            record_id=record_id,
            answer=answer.value,
        )

    def _replace(self, draft: Draft, hold: Hold) -> None:
        """Write the draft into an entry that waits, and is locked."""
        # Marks of other features belong to the entry, search keys and a limit to what is posted.
        marks = marks_of(self._headers[hold.record_id])
        marks.pop(LIMIT_MARK, None)
        values = {
            **{name: draft.row[name] for name in _REPLACED},
            "headers": with_marks(draft.row["headers"], marks),
            "error_count": 0,
            "subscribers_done": None,
        }
        self._store.statements.change(self._connection, record_id=hold.record_id, values=values)
        draft.changed = draft.row["effective_date"]
        self._answer(draft, Posted(hold.record_id, Answer.UPDATED))

    def _requeue(self, key: str, draft: Draft) -> None:
        """Keep the draft until the entry that runs has ended."""
        row = draft.row
        following = Following(
            creating_owner=row["creating_owner"],
            effective_date=row["effective_date"],
            headers=with_marks(row["headers"], {KEY_MARK: key}),
            class_name=row["class_name"],
            event_json=row["event_json"],
            event_bytes=row["event_bytes"],
            codec=row["codec"],
            user_token=row["user_token"],
            future_user_token=row["future_user_token"],
            search_key1=row["search_key1"],
            search_key2=row["search_key2"],
        )
        values = {
            "requeue": msgspec.json.encode(following).decode(),
            "look_date": self._store.clock.now(),
        }
        self._keys.change(self._connection, self._link.table_name, self._queue_name, [key], values)

    # -- after the insertion ----------------------------------------------------------------------

    def after(self) -> None:
        """Give the keys to the entries that were inserted."""
        rows = [
            self._row(key, draft) for key, draft in self._new.items() if key not in self._complete
        ]
        if rows:
            self._keys.put(
                self._connection,
                self._link.table_name,
                self._queue_name,
                rows=rows,
                taken_by=self._taken_by,
                look=self._look,
            )
        for draft in self._new.values():
            draft.answer = Posted(draft.answer or 0, Answer.ADDED)
        for draft, key, answer in self._same:
            draft.answer = Posted(self._new[key].answer or 0, answer)


def _kept(keep: Keep) -> tuple[str, float | None]:
    return (PERIOD, keep.total_seconds()) if isinstance(keep, timedelta) else (keep, None)

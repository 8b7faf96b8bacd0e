"""Posts whose idempotency keys may be taken already.

A key that is seen to be taken, by an entry that stays as it is, is not locked: the end of that
entry goes on, though the caller's transaction stays open. All others are locked. An entry that
waits is locked with its key where the post relies on its not having begun. It does not begin then
before the caller's transaction has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Row

from queue_core.errors import DuplicateKeyError
from queue_core.links import ordering
from queue_core.links.circuits import PROBE_MARK, REPLACED
from queue_core.links.following import Following
from queue_core.links.groups import GROUP_MARK
from queue_core.links.hold import WAITING, Hold, kept
from queue_core.links.keys import KEEP_MARK, KEY_MARK, entries_of, with_key
from queue_core.model.keyed import Answer, KeyState, Posted
from queue_core.model.lanes import ANY_NODE, RETURNING, SUSPECT, is_keyed, is_paused
from queue_core.posting.draft import Draft
from queue_core.posting.linked_post import LinkedPost
from queue_core.posting.taken_keys import TakenKeys
from queue_core.runtime.shown import shown
from sql.search_keys import AWAITED, marks_of, with_marks

T = TypeVar("T")

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
_OF_ENTRY = {
    KEY_MARK,
    KEEP_MARK,
    ordering.KEY_MARK,
    ordering.FAILURE_MARK,
    GROUP_MARK,
    AWAITED,
    PROBE_MARK,
}
"""The marks that an entry keeps when another posting replaces its own: they are its links."""


class KeyedPosts:
    """The keys of one post, in one transaction: `before` the insertion, and after."""

    def __init__(self, post: LinkedPost, drafts: Sequence[Draft]) -> None:
        self._post = post
        self._keys, self._link = post.store.keys.keys, post.store.keys
        self._drafts = drafts
        self._by_key = dict[str, list[Draft]]()
        for draft in drafts:
            if draft.posting.key is not None:
                self._by_key.setdefault(draft.posting.key, []).append(draft)
        self._taken = TakenKeys(post, drafts, self._by_key)
        self._new = dict[str, Draft]()
        """By key, the draft whose entry has it from now on."""
        self._waiting = dict[int, Row[Any]]()
        """By id, (record_id, headers, lane) of entries that wait, and are locked."""
        self._requeues = set[str]()
        """Keys whose entries another one is to follow."""
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
        if self._taken.ids_ahead:
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
            ids = self._post.reserve(len(drafts))
            for draft, record_id in zip(drafts, ids, strict=True):
                draft.row = {"record_id": record_id, **draft.row}

    def _seen(self, keys: Sequence[str]) -> dict[str, Hold]:
        """The states of those keys that somebody has, by the committed rows of others."""
        seen = partial(self._link.seen, queue_name=self._post.queue_name, keys=keys)
        return self._read(seen) if self._post.may_be_blind else seen(self._post.connection)

    def _read(self, work: Callable[[Connection], T]) -> T:
        """Read the committed rows of others."""
        store = self._post.store
        return store.reaching(partial(store.database.fetch, work))

    def _needs_lock(self, key: str, hold: Hold | None) -> bool:
        """Whether a post may take the key, or change its entry."""
        if hold is None or not hold.held:
            return True
        if hold.keep == WAITING and self._post.may_be_blind:
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
        others = self._taken.take(keys, there)
        if not others:
            return {}
        if self._post.may_be_blind:
            ids = entries_of(others)
            live = self._read(partial(self._link.live, ids=ids))
            # Nobody else sees those of the caller's transaction.
            own = [record_id for record_id in ids if record_id not in live]
            live |= self._link.live(self._post.connection, own)
            holds = self._read(partial(self._link.holds, rows=others, live=live))
        else:
            holds = self._link.holds(self._post.connection, others)
        for row in others:
            if holds[row.entry_key].state is KeyState.DONE_WITH_REQUEUE:
                self._follow(row, holds[row.entry_key])
            elif row.requeue is not None:
                self._requeues.add(row.entry_key)
        relied = {
            hold.record_id: hold
            for key, hold in holds.items()
            if hold.waits and self._relies(key, hold)
        }
        if relied:
            main = self._post.store.statements.main
            waiting = self._keys.lock_waiting(self._post.connection, main, ids=list(relied))
            self._waiting |= waiting
            for record_id, hold in relied.items():
                if record_id not in waiting:
                    hold.has_started()
        return holds

    def _follow(self, row: Row[Any], hold: Hold) -> None:
        """Make up for an end that has passed the key over: what was to follow has it now."""
        record_id, date = self._link.follow(self._post.connection, row)
        hold.is_followed_by(record_id)
        self._by_key[row.entry_key][0].changed = date

    def _relies(self, key: str, hold: Hold) -> bool:
        """Whether the post relies on an entry's not having begun."""
        return hold.keep == WAITING or any(
            draft.posting.on_conflict in {"replace", "debounce"} for draft in self._by_key[key]
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
                self._drop_requeue(key)
            case "debounce" if hold.runs:
                self._gain(key, draft)
            case "requeue" if hold.runs:
                self._requeue(draft, hold)
                self._answer(draft, Posted(hold.record_id, Answer.LOCKED))
            case "requeue" if not hold.waits:
                self._gain(key, draft)
            case _:
                self._answer(draft, Posted(hold.record_id, _ANSWERS[hold.state]))

    def _answer(self, draft: Draft, answer: Posted) -> None:
        draft.inserts, draft.answer = False, answer

    def _gain(self, key: str, draft: Draft) -> None:
        """The draft's entry is to have the key."""
        headers = with_key(draft.row["headers"], key, *kept(draft.posting.keep))
        draft.row = {**draft.row, "headers": headers}
        self._new[key] = draft

    def _repeat(self, key: str, draft: Draft, first: Draft) -> None:
        """Settle a draft whose key an earlier one of the same post has."""
        draft.inserts, answer = False, Answer.ALREADY_QUEUED
        match draft.posting.on_conflict:
            case "raise":
                raise self._duplicate(key, None, answer)
            case "replace" | "debounce":
                answer = Answer.UPDATED
                headers = with_key(draft.row["headers"], key, *kept(first.posting.keep))
                changes = {name: draft.row[name] for name in _REPLACED}
                first.row = {**first.row, **changes, "headers": headers}
        self._same.append((draft, key, answer))

    def _duplicate(self, key: str, record_id: int | None, answer: Answer) -> DuplicateKeyError:
        who = "an earlier one of the same post" if record_id is None else f"entry {record_id}"
        return DuplicateKeyError(
            f"{self._post.queue_name}: the key {shown(key)} belongs to {who} ({answer.value}). "
            "Nothing was written.",
            queue_name=self._post.queue_name,
            key=key,
            record_id=record_id,
            answer=answer.value,
        )

    def _replace(self, draft: Draft, hold: Hold) -> None:
        """Write the draft into an entry that waits, and is locked."""
        replaced = self._waiting[hold.record_id]
        marks = {
            mark: text for mark, text in marks_of(replaced.headers).items() if mark in _OF_ENTRY
        }
        if PROBE_MARK in marks:
            marks[PROBE_MARK] = REPLACED
        values = {
            **{name: draft.row[name] for name in _REPLACED},
            "headers": with_marks(draft.row["headers"], marks),
            "error_count": 0,
            "subscribers_done": None,
        }
        if draft.row["effective_date"] < draft.row["created_date"]:
            # A head start counts from there: it is no lateness.
            values["created_date"] = draft.row["created_date"]
        self._post.store.statements.change(
            self._post.connection, record_id=hold.record_id, values=values
        )
        self._judge_anew(replaced)
        draft.changed = draft.row["effective_date"]
        self._answer(draft, Posted(hold.record_id, Answer.UPDATED))

    def _judge_anew(self, replaced: Row[Any]) -> None:
        """Let an entry go that waited behind what does not concern its new posting, perhaps.

        That is the limit of another key, or the pause or circuit of a handler. The next claim sets
        it aside again where it has to.
        """
        if is_keyed(replaced.lane):
            to_lane, suspect_lane = ANY_NODE, SUSPECT
        elif is_paused(replaced.lane):
            to_lane = suspect_lane = RETURNING
        else:
            return
        self._post.store.statements.change_lane(
            self._post.connection,
            ids=[replaced.record_id],
            from_lane=replaced.lane,
            to_lane=to_lane,
            suspect_lane=suspect_lane,
        )

    def _requeue(self, draft: Draft, hold: Hold) -> None:
        """Keep the draft until the entry that runs has ended."""
        headers = with_key(draft.row["headers"], hold.key, hold.keep, hold.keep_seconds)
        following = Following.of_row({**draft.row, "headers": headers})
        values = {
            "requeue": msgspec.json.encode(following).decode(),
            "look_date": self._post.store.clock.now(),
        }
        self._keys.change(
            self._post.connection, self._link.table_name, self._post.queue_name, [hold.key], values
        )

    def _drop_requeue(self, key: str) -> None:
        """What was to follow the entry is older than what has just replaced that one."""
        if key in self._requeues:
            self._requeues.discard(key)
            self._keys.change(
                self._post.connection,
                self._link.table_name,
                self._post.queue_name,
                [key],
                {"requeue": None},
            )

    # -- after the insertion ----------------------------------------------------------------------

    def after(self) -> None:
        """Give the keys to the entries that were inserted."""
        self._taken.give(self._new)
        for draft in self._new.values():
            draft.answer = Posted(draft.record_id, Answer.ADDED)
        for draft, key, answer in self._same:
            draft.answer = Posted(self._new[key].record_id, answer)

"""The result of a run: the closed set of outcomes that the finisher gets.

It writes all but Recorded and Lost.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from queue_core.model.answers import NotDone, error_name
from queue_core.model.entry import Entry, SubscriberProgress
from queue_core.model.lanes import Lane
from queue_core.model.retry_policies import Circuit
from queue_core.model.states import State
from queue_core.runtime.shown import text_of
from sql.tables import ERROR_LENGTH


class Finished(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The entry has ended: to history with `state`."""

    entry: Entry
    state: State
    started_date: datetime | None
    finished_date: datetime
    error_count: int
    progress: SubscriberProgress
    last_error: str | None = None
    undelivered: bool = False
    """Nobody subscribes to it."""
    keep: timedelta | None = None
    """The time for which its handlers want its key to be kept."""
    may_have_succeeded: bool = False
    """Whether the row may know of successes beside `progress`: see `with_recorded`."""


class Break(NamedTuple):
    """The cause that opens a circuit or keeps it open: a failed handler, and its policy."""

    handler: str
    policy: Circuit


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """The entry runs again at `at` (UTC), or when the circuit of a handler lets it."""

    entry: Entry
    at: datetime
    error_count: int
    progress: SubscriberProgress
    started_date: datetime
    opens: Break | None = None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An exactly-once handler's transaction has written the outcome already."""

    entry: Entry
    state: State
    started_date: datetime
    error_count: int
    last_error: str | None = None


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is left to write.

    The entry had been taken over by another claim, or a COMMIT of its outcome gave no answer. The
    table tells; if the entry is still this node's there, a sweep gives it back.
    """

    entry: Entry


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """The entry was not started: back to its lane."""

    entry: Entry


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody here knows the entry's type or queue: set aside."""

    entry: Entry


class SetAside(msgspec.Struct, frozen=True, kw_only=True):
    """The entry waits in `lane` for a place or a pause's end, with the changes of its run."""

    entry: Entry
    lane: Lane
    error_count: int
    progress: SubscriberProgress | None = None
    """The progress of its subscribers; None if the run has changed nothing."""


Outcome = Finished | Retried | Recorded | Lost | Released | Parked | SetAside
ENDED = Finished, Recorded
"""Outcomes of entries that have ended."""


def seconds_of(outcomes: Sequence[Outcome]) -> float:
    """About how long handlers ran for outcomes, which are in the order of their ends.

    The first and the last one tell it: it is the time from the earlier start to the later end. It
    is infinite if neither tells when it started.
    """
    ends = [one for one in (*outcomes[:1], *outcomes[-1:]) if isinstance(one, Finished)]
    started = [one.started_date for one in ends if one.started_date is not None]
    if not started:
        return math.inf
    return (max(one.finished_date for one in ends) - min(started)).total_seconds()


def given_up(progress: SubscriberProgress) -> str | None:
    """The reason why an entry failed whose last run did not: subscribers that ran no more in it.

    None if there are none.
    """
    names = ", ".join(name for name, succeeded in progress.items() if succeeded is False)
    return (
        f"RetriesUsedUp: failed in an earlier run (see its log): {names}"[:ERROR_LENGTH]
        if names
        else None
    )


def describe(error: BaseException) -> str:
    """Type, message and the tail of the traceback, in `ERROR_LENGTH` storable characters."""
    head = f"{error_name(error)}: {text_of(error)}"[: ERROR_LENGTH // 4]
    # A handler's answer has no place in its code, but a note may say why no policy was asked.
    tail = (
        "\n".join(getattr(error, "__notes__", ()))
        if isinstance(error, NotDone)
        else "".join(traceback.format_exception(error))
    )
    told = f"{head}\n{tail[-(ERROR_LENGTH // 2) :]}".rstrip("\n").replace("\0", "\\0")
    return told.encode(errors="backslashreplace").decode()[:ERROR_LENGTH]

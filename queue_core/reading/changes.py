"""Changes that a person makes to many entries, a batch in each transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import ClassVar

from sqlalchemy import Connection

from queue_core.errors import EntryNotChangeableError, EntryNotFoundError
from queue_core.model.states import State
from queue_core.reading.history import REPEATABLE, History
from queue_core.storage.endings import remove_locked
from queue_core.storage.progress import move_retries
from queue_core.storage.store import Store

NOT_STARTED = (State.AVAILABLE, State.WAITING)


class Change(ABC):
    """The change that is made to each of the entries."""

    past: ClassVar[bool] = False
    """Whether they are in history; there, only those that nobody has retried or discarded."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @abstractmethod
    def apply(self, connection: Connection, ids: Sequence[int]) -> int:
        """Change some entries in one transaction, and return how many."""


class Retrying(Change):
    """Posts ended entries again."""

    past = True

    def __init__(self, store: Store, *, all_subscribers: bool) -> None:
        super().__init__(store)
        self._history = History(store, None)
        self._all_subscribers = all_subscribers

    def apply(self, connection: Connection, ids: Sequence[int]) -> int:
        """Retry those that nobody has retried by now."""
        retry = partial(
            self._history.retry_inside,
            connection,
            now=self.store.clock.now(),
            all_subscribers=self._all_subscribers,
        )
        left = _unretried(self.store, connection, ids)
        return sum(_is_done(partial(retry, record_id)) for record_id in left)


class Discarding(Change):
    """Counts failed entries among the dead letters no more."""

    past = True

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._history = History(store, None)

    def apply(self, connection: Connection, ids: Sequence[int]) -> int:
        """Discard those that nobody has retried or discarded by now."""
        now = self.store.clock.now()
        return sum(
            _is_done(partial(self._history.discard_inside, connection, record_id, now))
            for record_id in _unretried(self.store, connection, ids)
        )


class Removing(Change):
    """Moves entries that nobody runs to history, as REMOVED."""

    def apply(self, connection: Connection, ids: Sequence[int]) -> int:
        """Remove those that nobody has started by now."""
        ended = {
            "processing_state": State.REMOVED.value,
            "finished_date": self.store.clock.now(),
        }
        return remove_locked(self.store, connection, _locked(self.store, connection, ids), ended)


class Rescheduling(Change):
    """Gives entries that nobody runs another date."""

    def __init__(self, store: Store, *, due: datetime) -> None:
        super().__init__(store)
        self._due = due

    def apply(self, connection: Connection, ids: Sequence[int]) -> int:
        """Reschedule those that nobody has started by now."""
        locked, statements = _locked(self.store, connection, ids), self.store.statements
        if locked:
            statements.reschedule(connection, ids=locked, due=self._due)
            move_retries(statements, connection, locked, self._due)
        return len(locked)


def _is_done(change: Callable[[], int | bool]) -> bool:
    """Whether an entry was changed; False if it matches no more. Both errors come before writes."""
    try:
        return bool(change())
    except (EntryNotFoundError, EntryNotChangeableError):
        return False


def _unretried(store: Store, connection: Connection, ids: Sequence[int]) -> list[int]:
    """Those of some ended entries that nobody has retried or discarded by now."""
    return store.statements.matching(
        connection,
        past=True,
        where=lambda table: [table.c.processing_state.in_(REPEATABLE)],
        ids=ids,
        unretried=True,
    )


def _locked(store: Store, connection: Connection, ids: Sequence[int]) -> list[int]:
    """Lock those of some live entries that nobody runs by now."""
    # Read in this transaction, for the reason that `Statements.lock_available` gives.
    read = store.statements.matching(
        connection,
        past=False,
        where=lambda table: [table.c.processing_state.in_(NOT_STARTED)],
        ids=ids,
    )
    return store.statements.lock_available(connection, ids=read) if read else []

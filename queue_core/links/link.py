"""A link: rows of other tables that belong to an entry, such as its key.

An entry that has links carries a mark for each kind, a header whose name is the library's. So an
entry without links costs nothing: its headers say that nobody has to be told of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

from sqlalchemy import Connection

from queue_core.model.entry import Entry
from queue_core.model.states import State


class Ending(NamedTuple):
    """An entry as it was, and the state in which it is in history now."""

    entry: Entry
    state: State
    keep: timedelta | None = None
    """The time for which its handlers want its key to be kept."""


class RetryByHand(NamedTuple):
    """An ended entry was posted once more, as a copy."""

    old: Entry
    new_id: int
    before: State | None
    """The end of its last try; None if a former copy lives."""
    force: bool
    """Whether obstacles are ignored."""


class Link(Protocol):
    """One kind of link. Its statements belong to the transaction that they are called in."""

    mark: str
    """The name of the header that entries with such a link carry."""

    def ended(self, connection: Connection, endings: Sequence[Ending], *, lent: bool) -> None:
        """Entries that carry the mark have gone to history, in this transaction.

        They are told of by ascending id, in which rows are to be locked. REAPED is no ending.
        `lent`: the transaction is a caller's, which may stay open.
        """
        ...

    def retried(self, connection: Connection, retry: RetryByHand, *, lent: bool) -> None:
        """An entry that carries the mark was retried, in this transaction.

        `lent`: the transaction is a caller's, which may stay open.
        """
        ...

    def discarded(self, connection: Connection, old: Entry, *, lent: bool) -> None:
        """A failed entry that carries the mark was discarded: nobody will retry it.

        `lent`: the transaction is a caller's, which may stay open.
        """
        ...

    def renewed(self, connection: Connection, old: Entry, new_id: int) -> None:
        """An entry that carries the mark lives on as a copy with a new id."""
        ...

"""Steady posting, in each way of an application, with a ledger of each transaction's outcome."""

from __future__ import annotations

import itertools
import random
import threading
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from stickybus import Mode, PersistentBus, Posted, Posting, StickybusError
from tests.chaos import journal, linked
from tests.chaos.journal import Answered, Journal, monotonic

KEYS_PER_PROCESS = 1_000_000
MANY = 20
"""Entries of one `post_many`.

A node's threads take fewer at once, so that some entries wait in its memory.
"""
POISON_EVERY = 40
_PAUSE_SECONDS = 0.05
"""After a post that failed: an application without any pause would only measure itself."""


class Kind(StrEnum):
    """What the handler does with an entry."""

    QUICK = "quick"
    SLOW = "slow"
    """Takes a while, so that kills and freezes meet it at work."""
    FLAKY = "flaky"
    """Fails the first time."""
    POISON = "poison"
    """Kills its process, each time."""


class Way(StrEnum):
    """How a transaction posts, and how it ends."""

    OWN = "own"
    OWN_MANY = "own, many"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "rollback to a savepoint"


@dataclass(frozen=True)
class Work:
    """The event."""

    key: int
    kind: str


class Load:
    """Posts from one thread until `stop`. `number` is the process's own, and leads its keys."""

    def __init__(
        self,
        bus: PersistentBus,
        users: Engine,
        ledger: Journal,
        *,
        node: str,
        number: int,
        rate: float,
        poisons: int,
        link: str,
    ) -> None:
        self._bus = bus
        self._users = users
        self._ledger = ledger
        self._node = node
        self._rate = rate
        self._poisons = poisons
        self._link = link
        self._keys = itertools.count(number * KEYS_PER_PROCESS + 1)
        self._random = random.Random(number)  # noqa: S311 -- a load, no secret
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def start(self) -> None:
        """Post from now on."""
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Post no more; whether the last transaction came to its end in time."""
        self._stopping.set()
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        due, number = monotonic(), 0
        while not self._stopping.wait(max(0.0, due - monotonic())):
            # What an outage has kept from being posted is not made up for.
            due = max(due, monotonic() - 1.0) + 1.0 / self._rate
            number += 1
            kind = self._kind(number)
            way = self._random.choices(list(Way), weights=(50, 4, 26, 10, 10))[0]
            if not self._post(kind, way):
                self._stopping.wait(_PAUSE_SECONDS)

    def _kind(self, number: int) -> Kind:
        if self._poisons and number % POISON_EVERY == 0:
            self._poisons -= 1
            return Kind.POISON
        return self._random.choices([Kind.QUICK, Kind.SLOW, Kind.FLAKY], weights=(82, 15, 3))[0]

    def _post(self, kind: Kind, way: Way) -> bool:
        keys = list(itertools.islice(self._keys, MANY if way is Way.OWN_MANY else 1))
        undone = list(itertools.islice(self._keys, 1 if way is Way.SAVEPOINT else 0))
        self._ledger.write(
            journal.Posting(at=monotonic(), node=self._node, keys=keys, undone=undone, kind=kind)
        )
        lease = self._lease()
        committed: bool | None = None
        ids: list[int] = []
        try:
            if way in {Way.OWN, Way.OWN_MANY}:
                ids = self._bus.post_many([self._posting(key, kind) for key in keys])
                committed = True
            else:
                committed = False
                with self._users.connect() as connection, connection.begin() as transaction:
                    ids = self._bus.post_many(
                        [self._posting(key, kind) for key in keys], connection=connection
                    )
                    for key in undone:
                        inner = connection.begin_nested()
                        self._bus.post_many([self._posting(key, kind)], connection=connection)
                        inner.rollback()
                    if way is not Way.ROLLBACK:
                        committed = None
                        transaction.commit()
                        committed = True
                    else:
                        transaction.rollback()
        except (SQLAlchemyError, StickybusError):
            pass  # the ledger tells what is known
        finally:
            # Had the lease lapsed meanwhile, the entry would be for any node.
            sticky = lease is not None and lease == self._lease()
            self._ledger.write(
                Answered(
                    at=monotonic(),
                    keys=keys,
                    committed=committed,
                    sticky=sticky and not self._link,
                    not_added=[
                        key
                        for key, posted in zip(keys, ids, strict=False)
                        if isinstance(posted, Posted) and not posted.created
                    ],
                )
            )
        return committed is not None

    def _lease(self) -> float | None:
        """Return since when this node's lease has held, if posts are for this node alone."""
        lifecycle = self._bus._engine.lifecycle
        if self._bus.config.mode is Mode.POLLING or not lifecycle.running or lifecycle.node is None:
            return None
        return lifecycle.node.lease.steady_from(lifecycle.node.config.lease_seconds / 2)

    def _posting(self, key: int, kind: Kind) -> Posting:
        more = linked.options(self._link, key)
        return Posting(event=Work(key, kind), search_key1=key, **more)

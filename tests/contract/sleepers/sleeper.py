"""One that sleeps on a channel in another thread, as an idle process does."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from sqlalchemy import URL

from queue_core.runtime.clock import Clock
from queue_core.runtime.manual_clock import ManualClock
from sql.database import Database
from sql.watching import Bell, Heard, Watch
from tests.contract.harness import BOUND_SECONDS
from tests.contract.hearing import hearing
from tests.contract.sleepers.server import CHANNEL, Server


@dataclass
class Sleeper:
    """One that sleeps on a channel."""

    heard: queue.Queue[Heard]

    def hears(self) -> Heard:
        """Wait for a hint."""
        return self.heard.get(timeout=BOUND_SECONDS)


@contextmanager
def sleeping(
    url: URL,
    *,
    looks_often: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
    bell: Bell | None = None,
) -> Iterator[Sleeper]:
    """Sleep in another thread, as an idle process does."""
    watch = Watch(CHANNEL, (clock or ManualClock()).monotonic, looks_often, bell or Bell())
    with closing(Database(url)) as database, hearing(database, watch) as heard:
        yield Sleeper(heard)


def ring(url: URL) -> None:
    """Wake those who sleep on the channel; returns when all were woken."""
    with closing(Database(url)) as database:
        notifier = database.dialect.notifier(database.engine, CHANNEL)
        assert notifier is not None
        with closing(notifier):
            assert notifier.notify(["any"])


@contextmanager
def asleep_on(url: URL, database_name: str) -> Iterator[Sleeper]:
    """One that sleeps, and has heard its first hint."""
    with sleeping(url) as sleeper:
        sleeper.hears()
        Server(url, database_name).sleeper()
        yield sleeper

"""Hints between processes: each learns that others have committed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Heard(NamedTuple):
    """One hint that others have committed something."""

    at: float
    """A time by which it was committed, on the watch's clock (monotonic, in seconds)."""
    payload: str | None = None
    """The text that came with it; None if there is none."""


class Hint(NamedTuple):
    """The message to others when a transaction commits."""

    channel: str
    payload: str


class Bell:
    """Ends a wait in another thread, for a file descriptor or for a flag."""

    def __init__(self) -> None:
        self._rung = threading.Event()
        self._heard, self._rope = socket.socketpair()

    @property
    def rung(self) -> bool:
        """Whether somebody has rung."""
        return self._rung.is_set()

    def fileno(self) -> int:
        """A descriptor that has something to read as soon as somebody rings."""
        return self._heard.fileno()

    def ring(self) -> None:
        """End all waits, for good."""
        self._rung.set()
        self._rope.close()

    def wait(self, seconds: float) -> None:
        """Wait that long, or until somebody rings."""
        self._rung.wait(seconds)

    def close(self) -> None:
        """Give the descriptors back; nobody may wait for them any more."""
        self.ring()
        self._heard.close()


@dataclass(frozen=True)
class Watch:
    """A wish to hear of others' commits until the bell rings."""

    channel: str
    """The name under which others tell, where the database does not tell by itself."""
    monotonic: Callable[[], float]
    """The clock of `Heard.at`, in seconds."""
    looks_often: Callable[[], bool] = lambda: False
    """Whether who watches looks for commits by itself just now, as often as hints would come."""
    bell: Bell = field(default_factory=Bell)
    """Ends the watch."""


class Notifier(Protocol):
    """A session that tells others of commits.

    Not to be used by two threads at once. With the capability `notifies` it waits for no answer: a
    post has no time for one.
    """

    @property
    def is_open(self) -> bool:
        """Whether it can notify still."""
        ...

    def notify(self, payloads: Collection[str]) -> bool:
        """Notify of each of the payloads.

        False while the answer to the one before is outstanding, or if the server was lost.
        """
        ...

    def close(self) -> None:
        """End the session."""
        ...

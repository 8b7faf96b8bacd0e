"""Which of several threads' reads is the newest: an older one, learnt later, must not undo it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from queue_core.runtime.lock import Lock


class NewestRead:
    """Numbers reads as they begin, and lets each be learnt unless a later one was."""

    def __init__(self) -> None:
        self._numbers, self._learnt, self._learning = count(1), 0, Lock()

    def begin(self) -> int:
        """The number of a read that begins now."""
        return next(self._numbers)

    def learn(self, read: int, learn: Callable[[], None] | None = None) -> bool:
        """Call `learn` with the result of a read; False if one that began later was learnt.

        Without `learn`, the read has found what was known.
        """
        with self._learning:
            if read < self._learnt:
                return False
            self._learnt = read
            if learn is not None:
                learn()
            return True

    def is_newest(self, read: int) -> bool:
        """Whether none that began later was learnt."""
        return read == self._learnt

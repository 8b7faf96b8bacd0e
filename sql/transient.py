"""The one retry of errors that pass by themselves: deadlocks, lock time-outs, connections that a server has closed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import tenacity

T = TypeVar("T")


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Patience:
    """How often something is run at most, the first run among them, and until when another one begins."""

    runs: float = math.inf
    seconds: float = math.inf
    pause_seconds: float = 0.01
    """The longest pause after the second run. Its double after the third, and so on: those who met part at random."""
    longest_pause_seconds: float = 1.0

    def within(self, seconds: float) -> Patience:
        """The same, for so many seconds at most."""
        return Patience(self.runs, seconds, self.pause_seconds, self.longest_pause_seconds)


OWN_TRANSACTION = Patience(runs=8)
"""Our own transactions are short: one that met as many deadlocks would meet the next. A statement's time limits them, too."""
HANDLER = Patience(runs=5)
"""A handler's transaction: its code runs again each time, and the entry's own retry policy comes after that."""
EMPTYING = Patience(runs=600, longest_pause_seconds=0.05)
"""The lock on a whole history: each try waits for 50 ms and blocks writers as long, so there are many short ones."""
UPGRADE_STEP = Patience(seconds=600.0, pause_seconds=0.1, longest_pause_seconds=2.0)
"""A step of an upgrade beside traffic: nobody waits for it, and long transactions of others end within minutes."""


def persist(
    run: Callable[[], T],
    may_succeed: Callable[[BaseException], bool],
    patience: Patience,
    between: Callable[[], None] = _nothing,
) -> T:
    """Run something, again while its error is one after which it `may_succeed`; the second time at once.

    Args:
        run: what has no effect if it raises such an error.
        may_succeed: whether an error passes by itself.
        patience: the limits. When they are reached, the last error is raised.
        between: called after each run that failed and is followed by another.

    Returns:
        What `run` returned.
    """
    deadline = time.monotonic() + patience.seconds
    try:
        return run()
    except Exception as error:
        if patience.runs <= 1 or time.monotonic() >= deadline or not may_succeed(error):
            raise
    between()
    again = tenacity.Retrying(
        retry=tenacity.retry_if_exception(may_succeed),
        stop=_over(patience.runs - 1, deadline),
        wait=tenacity.wait_random_exponential(
            multiplier=patience.pause_seconds, max=patience.longest_pause_seconds
        ),
        before_sleep=lambda _state: between(),
        reraise=True,
    )
    return again(run)


def _over(runs: float, deadline: float) -> Callable[[tenacity.RetryCallState], bool]:
    return lambda state: state.attempt_number >= runs or time.monotonic() >= deadline

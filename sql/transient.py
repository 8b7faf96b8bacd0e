"""The one retry of errors that pass by themselves, as deadlocks and lock time-outs do."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import tenacity

T = TypeVar("T")


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Patience:
    """The limits of a retry.

    No run begins after the last one allowed, or after the time is over.
    """

    runs: float = math.inf
    """All runs, the first among them."""
    seconds: float = math.inf
    """From the beginning of the first run to the beginning of the last."""
    pause_seconds: float = 0.01
    """The longest pause after the second run; it doubles with each run.

    Its length is random, so that two that met do not meet again.
    """
    longest_pause_seconds: float = 1.0
    """The limit of the doubling."""
    shortest_pause_seconds: float = 0.0
    """Of each pause, the one before the second run among them, whatever the others say."""

    def within(self, seconds: float) -> Patience:
        """The same limits, and another on the time."""
        return replace(self, seconds=seconds)


OWN_TRANSACTION = Patience(runs=8)
"""Our own transactions are short. One that met eight deadlocks would meet a ninth.

A statement's time limits them, too.
"""
HANDLER = Patience(runs=5)
"""A handler's code runs again each time.

After the fifth run the entry's own retry policy decides.
"""
EMPTYING = Patience(runs=600, longest_pause_seconds=0.05)
"""The lock on a whole history.

Each try waits for it 50 ms, and holds up writers as long: hence many short tries.
"""
UPGRADE_STEP = Patience(seconds=600.0, pause_seconds=0.1, longest_pause_seconds=2.0)
"""A step of an upgrade beside traffic.

Nobody waits for it, and others' transactions end within minutes.
"""


def persist(
    run: Callable[[], T],
    may_succeed: Callable[[BaseException], bool],
    patience: Patience,
    between: Callable[[], None] = _nothing,
) -> T:
    """Call `run`, and again after an error that passes.

    The second call comes at once, but for the shortest pause.

    Args:
        run: Has no effect if it raises an error that passes.
        may_succeed: Tells whether an error passes.
        patience: The limits. Once one is reached, the last error is raised.
        between: Called between two runs.

    Returns:
        The answer of `run`.
    """
    deadline = time.monotonic() + patience.seconds
    try:
        return run()
    except Exception as error:
        if patience.runs <= 1 or time.monotonic() >= deadline or not may_succeed(error):
            raise
    between()
    time.sleep(patience.shortest_pause_seconds)
    again = tenacity.Retrying(
        retry=tenacity.retry_if_exception(may_succeed),
        stop=_over(patience.runs - 1, deadline),
        wait=tenacity.wait_random_exponential(
            multiplier=patience.pause_seconds,
            max=patience.longest_pause_seconds,
            min=patience.shortest_pause_seconds,
        ),
        before_sleep=lambda _state: between(),
        reraise=True,
    )
    return again(run)


def _over(runs: float, deadline: float) -> Callable[[tenacity.RetryCallState], bool]:
    return lambda state: state.attempt_number >= runs or time.monotonic() >= deadline

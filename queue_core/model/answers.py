"""Answers of a handler: run it again, never again, or done for a time."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from datetime import timedelta

from queue_core.runtime.shown import shown

# A century: past every sensible retry, and its end is still a date that each database can hold.
LONGEST_DELAY = timedelta(days=36_525)


def as_delay(delay: timedelta | float, name: str = "delay") -> timedelta:
    """Seconds or a timedelta as a timedelta. Raises ValueError unless it is 0 s to a century."""
    try:
        given = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
    except (OverflowError, TypeError, ValueError):
        given = -LONGEST_DELAY
    if not timedelta() <= given <= LONGEST_DELAY:
        raise ValueError(f"{name}={shown(delay)} is not allowed: from 0 s to a century")
    return given


@dataclass(frozen=True)
class Retry:
    """Returned by a handler: this run has failed, run the entry again.

    The run counts in `error_count`. With `after`, the answer is that of `RetryLater`: the policy is
    not asked, and a handler may ask as often as it likes. Without it, the policy decides as for
    every other failure, and may end the entry FAILED.

    Args:
        after: Seconds or a timedelta from the end of this run, from 0 to a century. Default: the
            policy decides.
        reason: A text for the error message. Default: none.

    Raises:
        ValueError: The delay is not allowed.

    Example:
        >>> def charge(order):
        ...     return Retry(after=60, reason="the bank is closed")
    """

    after: timedelta | float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if self.after is not None:
            object.__setattr__(self, "after", as_delay(self.after, "after"))


@dataclass(frozen=True)
class Fail:
    """Returned by a handler: further runs are pointless, the entry ends FAILED now.

    Its other subscribers still run, and are tried again by their own policies.

    Args:
        reason: A text for the entry's `last_error`, which reads `Fail: reason`.

    Example:
        >>> def charge(order):
        ...     return Fail("the account is closed")
    """

    reason: str


@dataclass(frozen=True)
class Done:
    """Returned by a handler: it has succeeded, and its idempotency key is kept for a time.

    Until then a post with the same key finds it taken, as if that entry had been posted with this
    `keep`. A key that is kept for ever stays so. It counts in the run that ends the entry; of
    several handlers the longest time counts. For an entry without a key it is a success like any
    other.

    Args:
        keep: Seconds or a timedelta from the end of the entry, from 0 to a century.

    Raises:
        ValueError: The time is not allowed.

    Example:
        >>> def index(customer):
        ...     return Done(keep=60)  # once a minute is enough
    """

    keep: timedelta | float

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", as_delay(self.keep, "keep"))


class NotDone(Exception):
    """Raised in place of a handler that has returned an answer."""

    def __init__(self, answer: Retry | Fail) -> None:
        super().__init__(answer)
        self.answer = answer

    def __str__(self) -> str:
        return str(self.answer.reason or "the handler asked for a retry")


def heed(returned: object) -> timedelta | None:
    """The time for which a handler that has succeeded wants its entry's key to be kept, or None.

    Raises NotDone if it has returned another answer, and TypeError for a body that nobody has run.
    Every other value means success.
    """
    if isinstance(returned, Retry | Fail):
        raise NotDone(returned)
    if inspect.iscoroutine(returned) or inspect.isgenerator(returned):
        returned.close()
        raise TypeError(f"the handler has returned {shown(returned)}, which nobody has run")
    return as_delay(returned.keep) if isinstance(returned, Done) else None


def error_name(error: BaseException) -> str:
    """The name of an error's type, or of the answer that it stands for."""
    return type(error.answer if isinstance(error, NotDone) else error).__name__

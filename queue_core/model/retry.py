"""Retry policies: when an entry runs again after a failure, unless its handler itself says so.

A policy is a pure rule: it reads a `Failure` and answers with the date of the next run, or None
when no run is left and the entry ends FAILED. All state is in the entry's row (`error_count`,
`effective_date`), so a schedule survives a restart and continues on another node. Dates are aware,
in UTC.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from queue_core.model.answers import Fail, NotDone, Retry, as_delay
from queue_core.runtime.clock import in_utc
from queue_core.runtime.shown import shown, text_of


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One failed run. Dates are aware, in UTC.

    Attributes:
        error: The exception that the handler raised.
        error_count: The failed runs so far, this one included.
        effective_date: The date that the run was due.
        now: The time of the failure.
    """

    error: BaseException
    error_count: int
    effective_date: datetime
    now: datetime


@runtime_checkable
class RetryPolicy(Protocol):
    """Decides when a failed entry runs again. Called from several threads."""

    def next_date(self, failure: Failure) -> datetime | None:
        """Decide when an entry runs again.

        Args:
            failure: Its last failure.

        Returns:
            An aware date; None ends the entry FAILED.
        """
        ...


class RetryLater(Exception):
    """Raised by a handler that knows better than its policy when to run again.

    The run counts in `error_count`, but neither ends the retries nor asks the policy: a handler may
    ask as often as it likes. A later failure of another kind meets the policy with that count, and
    is final if it is past the policy's limit.

    Args:
        delay: Seconds or a timedelta from the end of the failed run, from 0 to a century.
        reason: A text for the error message. Default: none.

    Raises:
        ValueError: The delay is not allowed.
    """

    def __init__(self, delay: timedelta | float, reason: str = "") -> None:
        super().__init__(delay, reason)
        self.delay = as_delay(delay)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.reason or 'the handler asked for a retry'}, in {self.delay.total_seconds():g} s"
        )


class GiveUp(Exception):
    """Raised by a handler: further runs are pointless, the entry ends FAILED now."""


def asks_for_date(error: BaseException) -> bool:
    """Whether a handler itself has said when it is to run again."""
    match error:
        case RetryLater() | NotDone(answer=Retry(after=timedelta())):
            return True
    return False


def decide(policy: RetryPolicy, failure: Failure) -> datetime | None:
    """The date of the next run (UTC), None if the entry ends FAILED.

    The handler's own request comes first, then the policy.

    Never raises: a policy that raises anything, or answers with anything but an aware date or None,
    ends the retries, and a note on `failure.error` says so, which reaches the entry's `last_error`.
    """
    try:
        match failure.error:
            case GiveUp() | NotDone(answer=Fail()):
                return None
            case RetryLater(delay=timedelta() as delay):
                return failure.now + delay
            case NotDone(answer=Retry(after=timedelta() as delay)):
                return failure.now + delay
        date = policy.next_date(failure)
        return None if date is None else in_utc(date, key="next_date")
    except BaseException as error:  # noqa: BLE001 -- the user's code; the failure of its handler must be told
        with suppress(BaseException):  # the handler's error may be of a class that takes no notes
            failure.error.add_note(
                f"No retry: {shown(policy)} failed with {type(error).__name__}: {text_of(error)}"
            )
        return None

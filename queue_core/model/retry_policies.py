"""The retry policies that the library has."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from queue_core.errors import ConfigurationError
from queue_core.model.answers import LONGEST_DELAY, as_delay
from queue_core.model.retry import Failure, RetryPolicy
from queue_core.runtime.arguments import is_number, not_allowed, of_kind
from queue_core.runtime.shown import shown


@dataclass(frozen=True)
class ImmediateRetries:
    """Run again at once.

    Args:
        max_retries: The number of retries, 0 or more. With 3 an entry has up to 4 runs. Default: 3.

    Raises:
        ConfigurationError: The number is not allowed.
    """

    max_retries: int = 3

    def __post_init__(self) -> None:
        _check(
            self,
            "max_retries",
            "0 or more",
            holds=is_number(self.max_retries) and self.max_retries >= 0,
        )

    def next_date(self, failure: Failure) -> datetime | None:
        """As `RetryPolicy.next_date`."""
        return failure.now if failure.error_count <= self.max_retries else None


@dataclass(frozen=True)
class ScheduledRetries:
    """Run again at fixed delays after the *original* date of the entry, never before now.

    A retry that comes late (the service was down) moves the ones after it by as much, so that they
    keep their distances.

    Args:
        delays: Timedeltas or seconds, in ascending order, from 0 to a century: one for each retry.
            Default: 5 and 15 minutes, 1, 6 and 24 hours.

    Raises:
        ConfigurationError: A delay is not allowed.
    """

    delays: tuple[timedelta | float, ...] = (
        timedelta(minutes=5),
        timedelta(minutes=15),
        timedelta(hours=1),
        timedelta(hours=6),
        timedelta(hours=24),
    )
    _steps: tuple[timedelta, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        allowed = "delays in ascending order, each from 0 s to a century"
        try:
            steps = tuple(as_delay(delay) for delay in self.delays)
        except (TypeError, ValueError) as error:
            raise not_allowed("delays", self.delays, allowed) from error
        _check(self, "delays", allowed, holds=steps == tuple(sorted(steps)))
        object.__setattr__(self, "_steps", steps)

    def next_date(self, failure: Failure) -> datetime | None:
        """As `RetryPolicy.next_date`."""
        failed_before = failure.error_count - 1
        if failed_before >= len(self._steps):
            return None
        # The failed run was itself the retry before this one: its date tells the original one.
        elapsed = self._steps[failed_before - 1] if failed_before else timedelta()
        return max(failure.now, failure.effective_date - elapsed + self._steps[failed_before])


@dataclass(frozen=True)
class ExponentialRetries:
    """Run again after initial_seconds * factor ** (failures - 1), at most maximum_seconds.

    Delays count from now. Each is shortened by a random part, so that entries that failed together
    don't return together, and none waits past the maximum.

    Args:
        initial_seconds: The first delay, above 0. Default: 1.
        factor: The ratio of each delay to the one before, 1 or more. Default: 2.
        maximum_seconds: The longest delay, at most a century. Default: 3,600.
        max_retries: The number of retries, 0 or more. Default: 10.
        jitter: The largest random part, from 0 to 1. Default: 0.1.
        random: Its source, to be repeatable in tests. Default: a new one.

    Raises:
        ConfigurationError: An argument is not allowed.
    """

    initial_seconds: float = 1.0
    factor: float = 2.0
    maximum_seconds: float = 3600.0
    max_retries: int = 10
    jitter: float = 0.1
    random: Random = field(default_factory=Random, repr=False, compare=False)

    def __post_init__(self) -> None:
        longest = LONGEST_DELAY.total_seconds()
        for key in ("initial_seconds", "factor", "maximum_seconds", "max_retries", "jitter"):
            _check(self, key, "a number", holds=is_number(getattr(self, key)))
        of_kind(self.random, Random, key="random")
        _check(
            self,
            "initial_seconds",
            "above 0, to a century",
            holds=0 < self.initial_seconds <= longest,
        )
        _check(self, "factor", "1 or more", holds=1 <= self.factor < math.inf)
        _check(
            self,
            "maximum_seconds",
            f"from initial_seconds ({self.initial_seconds:g}) to {longest:g}",
            holds=self.initial_seconds <= self.maximum_seconds <= longest,
        )
        _check(self, "max_retries", "0 or more", holds=self.max_retries >= 0)
        _check(self, "jitter", "a fraction from 0 to 1", holds=0 <= self.jitter <= 1)

    def next_date(self, failure: Failure) -> datetime | None:
        """As `RetryPolicy.next_date`."""
        if failure.error_count > self.max_retries:
            return None
        return failure.now + delay_after(self, failure.error_count)


@dataclass(frozen=True)
class Circuit(ExponentialRetries):
    """After a failure, let the handler's failed entries wait, and one of them probe.

    For handlers that fail when a service that they call is away. Fresh entries run. Of the failed
    ones, those of all nodes together, one chosen at random runs after a delay, alone: the probe. If
    it fails, another one is chosen, after a longer delay. When a probe succeeds, all run again.

    The delays are those of `ExponentialRetries`, but by the number of failed probes. Each entry
    still has its own number of retries. In memory, and in a retry that the handler itself asks for
    with a delay, no entry waits for others.

    Args:
        initial_seconds: The first delay, above 0. Default: 5.
        factor: The ratio of each delay to the one before, 1 or more. Default: 2.
        maximum_seconds: The longest delay, at most a century. Default: 300.
        max_retries: The number of retries of each entry, 0 or more. Default: 10,000.
        jitter: The largest random part, from 0 to 1. Default: 0.1.
        random: Its source, to be repeatable in tests. Default: a new one.

    Raises:
        ConfigurationError: An argument is not allowed.

    Example:
        >>> @bus.subscribe("mail.queued", retry=Circuit())
        ... def send(mail): ...
    """

    initial_seconds: float = 5.0
    maximum_seconds: float = 300.0
    max_retries: int = 10_000


def delay_after(policy: ExponentialRetries, failures: int) -> timedelta:
    """The delay after a number of failures, 1 or more, shortened by its random part."""
    try:
        grown = policy.initial_seconds * policy.factor ** (failures - 1)
    except OverflowError:
        grown = policy.maximum_seconds
    seconds = min(grown, policy.maximum_seconds) * (1 - policy.jitter * policy.random.random())
    return timedelta(seconds=seconds)


def policy_from_table(table: Mapping[str, object]) -> RetryPolicy:
    """Build a policy from configuration: `kind` is immediate, scheduled, exponential or circuit.

    The other keys are its arguments.

    Raises ConfigurationError, naming the key, the value and the allowed ones.
    """
    arguments = dict(table)
    kind = arguments.pop("kind", None)
    build = _KINDS.get(kind) if isinstance(kind, str) else None
    if build is None:
        raise not_allowed("kind", kind, ", ".join(sorted(_KINDS)))
    try:
        return build(**arguments)
    except TypeError as error:
        raise ConfigurationError(
            f"retry={shown(dict(table))} is not allowed: {error}.", key="retry", value=dict(table)
        ) from error


def _scheduled(*, delays_seconds: tuple[float, ...]) -> ScheduledRetries:
    return ScheduledRetries(tuple(delays_seconds))


_KINDS: dict[str, Callable[..., RetryPolicy]] = {
    "immediate": ImmediateRetries,
    "scheduled": _scheduled,
    "exponential": ExponentialRetries,
    "circuit": Circuit,
}


def _check(policy: RetryPolicy, key: str, allowed: str, *, holds: bool) -> None:
    if not holds:
        raise not_allowed(key, getattr(policy, key), allowed)

"""The health of a bus or service: whether its node's beats reach the database."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from queue_core.model.node_config import NodeConfig
from queue_core.runtime.clock import Clock
from queue_core.runtime.lock import Lock
from queue_core.runtime.log import get_logger

log = get_logger(__name__)

ErrorHook: TypeAlias = Callable[[BaseException], None]
"""Called with the error of the last beat."""
RecoveryHook: TypeAlias = Callable[[], None]


class Health:
    """Each beat is a check. `call` runs a hook where one that hangs holds up no beat."""

    def __init__(
        self,
        table: str,
        config: NodeConfig,
        clock: Clock,
        call: Callable[[Callable[[], None]], None],
    ) -> None:
        self._table = table
        self._config = config
        self._clock = clock
        self._call = call
        self._lock = Lock()
        self._started: float | None = None
        self._succeeded: float | None = None
        """When (monotonic) the last check succeeded; None before the first, and after a stop."""
        self._told: float | None = None
        """When the error that lasts was told last; None if none was."""
        self.error_hooks: list[ErrorHook] = []
        self.recovery_hooks: list[RecoveryHook] = []

    def start(self) -> None:
        """Begin with the grace, and without a check."""
        with self._lock:
            self._started, self._succeeded, self._told = self._clock.monotonic(), None, None

    def stop(self) -> None:
        """No check follows."""
        with self._lock:
            self._started = self._succeeded = self._told = None

    def healthy(self) -> bool | None:
        """Whether a check has succeeded within the allowed time; None before the first check."""
        succeeded = self._succeeded
        if succeeded is None:
            return None
        return self._clock.monotonic() - succeeded <= self._config.health_allowed_error_seconds

    def unhealthy(self) -> bool:
        """Whether `healthy` is False, and the grace after the start is over."""
        started = self._started
        if started is None or self.healthy() is not False:
            return False
        return self._clock.monotonic() - started >= self._config.health_grace_seconds

    def succeeded(self) -> None:
        """A check has succeeded."""
        with self._lock:
            if self._started is None:
                return
            self._succeeded = self._clock.monotonic()
            recovered, self._told = self._told is not None, None
        if recovered:
            log.info("health_recovered", table=self._table)
            for hook in self.recovery_hooks:
                self._call(hook)

    def failed(self, error: BaseException) -> None:
        """A check has failed. It is told once the node's lease has ended, then now and again."""
        with self._lock:
            now, succeeded = self._clock.monotonic(), self._succeeded
            if succeeded is None or now - succeeded < self._config.lease_seconds:
                return
            pause = self._config.health_callback_pause_seconds
            if self._told is not None and now - self._told < pause:
                return
            self._told = now
        log.error(
            "health_failed",
            table=self._table,
            error_type=type(error).__name__,
            seconds=round(now - succeeded, 3),
        )
        for hook in self.error_hooks:
            self._call(partial(hook, error))

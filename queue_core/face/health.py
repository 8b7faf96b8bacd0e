"""The health of a bus or service."""

from __future__ import annotations

from queue_core.cluster.health import ErrorHook, RecoveryHook
from queue_core.face.part import FacePart
from queue_core.runtime.arguments import function


class FaceHealth(FacePart):
    """Whether the database is reached, for probes."""

    def healthy(self) -> bool | None:
        """Whether this bus or service reaches the database. It asks the process only.

        Each beat of its node is a check.

        Returns:
            True if a beat succeeded within the last `NodeConfig.health_allowed_error_seconds` (15
            minutes by default), otherwise False; None before the first check, and after a stop.

        Example:
            ```python
            if bus.unhealthy():
                sys.exit("no beat has reached the database for 15 minutes")
            ```
        """
        return self._engine.lifecycle.health.healthy()

    def unhealthy(self) -> bool:
        """Whether a restart may help: `healthy` is False, and the start was long enough ago.

        Returns:
            False during `NodeConfig.health_grace_seconds` after each start (10 minutes by default),
            and while `healthy` is True or None.
        """
        return self._engine.lifecycle.health.unhealthy()

    def on_health_error(self, hook: ErrorHook) -> ErrorHook:
        """Decorate a function that is called when beats fail for longer than the lease.

        It is called again while they fail, once in each `NodeConfig.health_callback_pause_seconds`
        (an hour by default). It runs on the handler pool; an exception of it is logged. The log has
        an ERROR `health_failed` each time in any case.

        Args:
            hook: Called with the error of the last beat.

        Returns:
            `hook`.

        Raises:
            ConfigurationError: `hook` can't be called.
        """
        function(hook, key="hook")
        self._engine.lifecycle.health.error_hooks.append(hook)
        return hook

    def on_recovery(self, hook: RecoveryHook) -> RecoveryHook:
        """Decorate a function that is called when a beat succeeds after `on_health_error`.

        It runs on the handler pool; an exception of it is logged. The log has an INFO
        `health_recovered` in any case.

        Args:
            hook: Called without arguments.

        Returns:
            `hook`.

        Raises:
            ConfigurationError: `hook` can't be called.
        """
        function(hook, key="hook")
        self._engine.lifecycle.health.recovery_hooks.append(hook)
        return hook

"""The settings of a bus or a notification service.

One object per bus or notification service; nothing is global. Values come from code, the
environment, a TOML file or the defaults here, in that order.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self, Unpack

from pydantic import Field, field_validator

from queue_core.errors import ConfigurationError
from queue_core.model.config_keys import (
    BusSettings,
    KeptHistory,
    QueueSettings,
    TomlBusSettings,
    TomlQueueSettings,
)
from queue_core.model.mode import Mode
from queue_core.model.names import ApplicationName, Name, NodeName, TableName
from queue_core.model.node_config import BatchSize, NodeConfig, OldNodeKeys, Seconds
from queue_core.model.retry import RetryPolicy
from queue_core.model.retry_policies import ImmediateRetries, policy_from_table
from queue_core.model.settings import Settings, combination

Threads = Annotated[int, Field(ge=1, le=10_000)]
Capacity = Annotated[int, Field(ge=1, le=1_000_000)]
Limit = Annotated[int, Field(ge=0, le=1_000_000)]


class QueueConfig(Settings, OldNodeKeys):
    """The settings of every queue; `BusConfig` and `NotificationConfig` know their defaults.

    Raises ConfigurationError when built from a wrong value, an unknown key or an impossible
    combination.
    """

    environment_prefix: ClassVar[str] = "STICKYBUS_"
    toml_table: ClassVar[str] = "queue"
    sections: ClassVar[Mapping[str, type[Settings]]] = {"node": NodeConfig}

    table: TableName
    node_name: NodeName | None = None
    node: NodeConfig = NodeConfig()
    mode: Mode
    handler_threads: Threads
    queue_capacity: Capacity
    max_entries_claimed: BatchSize = 100
    poll_interval_seconds: Seconds = 3.0
    max_failure_retries: Limit = 3
    retry: RetryPolicy = Field(
        default_factory=lambda data: ImmediateRetries(data["max_failure_retries"])
    )
    claim_seconds: Seconds = 300.0
    max_redispatches: Limit = 5
    shutdown_timeout_seconds: Annotated[float, Field(ge=0, le=1e9)] = 15.0
    max_payload_bytes: Annotated[int, Field(ge=1, le=1_000_000_000)] = 1_048_576
    max_execution_seconds: Seconds = 300.0
    unknown_retention_days: Annotated[float, Field(gt=0, le=36_525)] = 14.0
    history: KeptHistory = "all"
    application_name: ApplicationName = "stickybus"
    auto_migrate: bool | None = None

    @property
    def history_table(self) -> str:
        """Name of the table that finished entries move to."""
        return f"{self.table}_history"

    def _check(self) -> None:
        """Raise ConfigurationError for values that are impossible together."""
        if {"retry", "max_failure_retries"} <= self.model_fields_set:
            raise combination(
                "max_failure_retries", self.max_failure_retries, "either it or retry, not both"
            )

    @field_validator("mode", mode="before")
    @classmethod
    def _any_case(cls, mode: object) -> object:
        if not isinstance(mode, str):
            raise ValueError(  # noqa: TRY004 -- which pydantic takes for a fault of this setting
                " or ".join(f"'{known}'" for known in Mode)
            )
        return mode.upper().replace("-", "_")

    @field_validator("node", mode="before")
    @classmethod
    def _one_object(cls, node: object) -> object:
        if not isinstance(node, NodeConfig):
            raise ValueError("a NodeConfig")  # noqa: TRY004 -- which pydantic takes for a fault of this setting
        return node

    @field_validator("retry", mode="before")
    @classmethod
    def _policy(cls, retry: object) -> object:
        if not isinstance(retry, Mapping):
            return retry
        try:
            return policy_from_table(retry)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"retry: {error}", key=f"retry.{error.key}", value=error.value
            ) from error


class BusConfig(QueueConfig):
    """Settings of a persistent bus."""

    environment_prefix: ClassVar[str] = "STICKYBUS_BUS_"
    toml_table: ClassVar[str] = "bus"

    name: Name = "bus"
    table: TableName = "bus_events"
    mode: Mode = Mode.STICKY_EVENTS
    handler_threads: Threads = 30
    queue_capacity: Capacity = 30_000

    @classmethod
    def from_environment(cls, prefix: str | None = None, **overrides: Unpack[BusSettings]) -> Self:
        """Settings from environment variables.

        A variable is the prefix and the key in capitals. One that has the prefix and names no key
        is an error, so that a typing mistake does not go unseen.

        Args:
            prefix: Default: `STICKYBUS_BUS_`.
            overrides: Keys that win over variables; None: not set.

        Returns:
            The checked settings.

        Raises:
            ConfigurationError: A value is not allowed, or no key. The text names its variable.
        """
        return cls._from_environment(prefix, overrides)

    @classmethod
    def from_toml(
        cls,
        path: str | Path,
        table: str | None = None,
        *,
        prefix: str | None = None,
        **overrides: Unpack[TomlBusSettings],
    ) -> Self:
        """Settings from a table of a TOML file, under those of the environment.

        Args:
            path: The file.
            table: The table; a dot leads into a table within a table. Default: `bus`. A file
                without it sets nothing.
            prefix: As for `from_environment`; an empty one leaves the environment out.
            overrides: Keys that win over both; None: not set.

        Returns:
            The checked settings.

        Raises:
            ConfigurationError: The file can't be read, a value is not allowed, or a key is none.
                The text names the file or the variable.
        """
        return cls._from_toml(path, table, prefix, overrides)

    def with_changes(self, **changes: Unpack[BusSettings]) -> Self:
        """A checked copy.

        Args:
            changes: Keys with their new values. Defaults that follow from them change, too.

        Returns:
            The copy.

        Raises:
            ConfigurationError: A value is not allowed, or a key is none.
        """
        return self._with_changes(changes)


class NotificationConfig(QueueConfig):
    """Settings of a notification service."""

    environment_prefix: ClassVar[str] = "STICKYBUS_NOTIFICATIONS_"
    toml_table: ClassVar[str] = "notifications"

    table: TableName = "notifications"
    mode: Mode = Mode.STICKY_POLLING
    handler_threads: Threads = 10
    queue_capacity: Capacity = 100

    @field_validator("mode")
    @classmethod
    def _polls(cls, mode: Mode) -> Mode:
        if mode is Mode.STICKY_EVENTS:
            raise ValueError("STICKY_POLLING or POLLING, as a notification waits for its date")
        return mode

    @classmethod
    def from_environment(
        cls, prefix: str | None = None, **overrides: Unpack[QueueSettings]
    ) -> Self:
        """Settings from environment variables.

        A variable is the prefix and the key in capitals. One that has the prefix and names no key
        is an error, so that a typing mistake does not go unseen.

        Args:
            prefix: Default: `STICKYBUS_NOTIFICATIONS_`.
            overrides: Keys that win over variables; None: not set.

        Returns:
            The checked settings.

        Raises:
            ConfigurationError: A value is not allowed, or no key. The text names its variable.
        """
        return cls._from_environment(prefix, overrides)

    @classmethod
    def from_toml(
        cls,
        path: str | Path,
        table: str | None = None,
        *,
        prefix: str | None = None,
        **overrides: Unpack[TomlQueueSettings],
    ) -> Self:
        """Settings from a table of a TOML file, under those of the environment.

        Args:
            path: The file.
            table: The table; a dot leads into a table within a table. A file without it sets
                nothing. Default: `notifications`.
            prefix: As for `from_environment`; an empty one leaves the environment out.
            overrides: Keys that win over both; None: not set.

        Returns:
            The checked settings.

        Raises:
            ConfigurationError: The file can't be read, a value is not allowed, or a key is none.
                The text names the file or the variable.
        """
        return cls._from_toml(path, table, prefix, overrides)

    def with_changes(self, **changes: Unpack[QueueSettings]) -> Self:
        """A checked copy.

        Args:
            changes: Keys with their new values. Defaults that follow from them change, too.

        Returns:
            The copy.

        Raises:
            ConfigurationError: A value is not allowed, or a key is none.
        """
        return self._with_changes(changes)

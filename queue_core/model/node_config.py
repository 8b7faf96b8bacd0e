"""The settings of a process as a node."""

from pathlib import Path
from typing import Annotated, ClassVar, Self, TypedDict, Unpack

from pydantic import Field

from queue_core.model.settings import Settings, combination
from queue_core.runtime.deprecation import OldName

BatchSize = Annotated[int, Field(ge=1, le=10_000)]
Seconds = Annotated[float, Field(gt=0, le=1e9)]


class NodeSettings(TypedDict, total=False):
    """Keys of a node; None: not set."""

    lease_seconds: float | None
    beat_interval_seconds: float | None
    reap_period_seconds: float | None
    reap_batch_size: int | None
    statement_timeout_seconds: float | None
    health_grace_seconds: float | None
    health_allowed_error_seconds: float | None
    health_callback_pause_seconds: float | None


class NodeConfig(Settings):
    """Settings of a process as a node of one database, which its buses and services share.

    They must agree: a member whose node has other settings does not start. A wrong value or an
    unknown key raises ConfigurationError.
    """

    environment_prefix: ClassVar[str] = "STICKYBUS_NODE_"
    toml_table: ClassVar[str] = "node"

    lease_seconds: Seconds = 15.0
    beat_interval_seconds: Seconds = Field(default_factory=lambda data: data["lease_seconds"] / 5)
    reap_period_seconds: Seconds = 5.0
    reap_batch_size: BatchSize = 200
    statement_timeout_seconds: Seconds = 30.0
    health_grace_seconds: Annotated[float, Field(ge=0, le=1e9)] = 600.0
    health_allowed_error_seconds: Seconds = 900.0
    health_callback_pause_seconds: Seconds = 3_600.0

    def _check(self) -> None:
        """Raise ConfigurationError for values that are impossible together."""
        if 3 * self.beat_interval_seconds > self.lease_seconds:
            # A node whose beats lie further apart is no steady witness: it could never declare
            # another dead.
            raise combination(
                "beat_interval_seconds",
                self.beat_interval_seconds,
                f"at most a third of lease_seconds ({self.lease_seconds:g})",
            )

    @classmethod
    def from_environment(cls, prefix: str | None = None, **overrides: Unpack[NodeSettings]) -> Self:
        """Settings from environment variables.

        A variable is the prefix and the key in capitals. One that has the prefix and names no key
        is an error, so that a typing mistake does not go unseen.

        Args:
            prefix: Default: `STICKYBUS_NODE_`.
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
        **overrides: Unpack[NodeSettings],
    ) -> Self:
        """Settings from a table of a TOML file, under those of the environment.

        Args:
            path: The file.
            table: The table; a dot leads into a table within a table. Default: `node`. A file
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

    def with_changes(self, **changes: Unpack[NodeSettings]) -> Self:
        """A checked copy.

        Args:
            changes: Keys with their new values. Defaults that follow from them change, too.

        Returns:
            The copy.

        Raises:
            ConfigurationError: A value is not allowed, or a key is none.
        """
        return self._with_changes(changes)


class OldNodeKeys:
    """The node's keys where they stood before: in the settings of each bus and service."""

    lease_seconds = OldName[float]("node.lease_seconds")
    beat_interval_seconds = OldName[float]("node.beat_interval_seconds")
    reap_period_seconds = OldName[float]("node.reap_period_seconds")
    reap_batch_size = OldName[int]("node.reap_batch_size")
    statement_timeout_seconds = OldName[float]("node.statement_timeout_seconds")

"""The keys of configurations, as calls take them."""

from collections.abc import Mapping
from typing import Literal, TypeAlias, TypedDict

from queue_core.model.mode import Mode, ModeName
from queue_core.model.node_config import NodeConfig
from queue_core.model.retry import RetryPolicy

KeptHistory: TypeAlias = Literal["all", "failures"]
"""The kinds of entries that have a row in the history table once they have ended."""


class ChangeableSettings(TypedDict, total=False):
    """Keys that a bus or service may change between a stop and a start; None: as it is."""

    handler_threads: int | None
    max_entries_claimed: int | None
    poll_interval_seconds: float | None
    max_failure_retries: int | None
    retry: RetryPolicy | Mapping[str, object] | None
    claim_seconds: float | None
    max_redispatches: int | None
    shutdown_timeout_seconds: float | None
    max_payload_bytes: int | None
    max_execution_seconds: float | None
    unknown_retention_days: float | None
    history: KeptHistory | None


class TomlQueueSettings(ChangeableSettings, total=False):
    """Keys of every queue, without `table`, which names a table of the file; None: not set."""

    node_name: str | None
    node: NodeConfig | None
    mode: Mode | ModeName | None
    queue_capacity: int | None
    application_name: str | None
    auto_migrate: bool | None


class TomlBusSettings(TomlQueueSettings, total=False):
    """Likewise, of a bus."""

    name: str | None


class QueueSettings(TomlQueueSettings, total=False):
    """Keys of every queue; None: not set."""

    table: str | None


class BusSettings(QueueSettings, total=False):
    """Keys of a bus; None: not set."""

    name: str | None

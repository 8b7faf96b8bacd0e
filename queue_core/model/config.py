"""The settings of a node, a bus and a notification service.

One object per bus or notification service; nothing is global. Values come from code, the
environment, a TOML file or the defaults here, in that order.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, field_validator

from queue_core.errors import ConfigurationError
from queue_core.model.lanes import is_reserved
from queue_core.model.retry import ImmediateRetries, RetryPolicy, policy_from_table
from queue_core.model.settings import Settings, combination
from sql.families import is_taken_name, shared_names, suffixes

MAX_NAME_LENGTH = 64


class Mode(StrEnum):
    """Who may run an entry, and how its node hears of it."""

    POLLING = "POLLING"
    """Any node that serves it; nodes poll."""
    STICKY_POLLING = "STICKY_POLLING"
    """The node that posted it; it polls, and is woken by its own commits."""
    STICKY_EVENTS = "STICKY_EVENTS"
    """The node that posted it; handed over from memory after the commit, without a claim."""


def name_fault(name: object, limit: int = MAX_NAME_LENGTH) -> str | None:
    """Why `name` can't be a node's, bus's or queue's name (or another of at most `limit` characters), None if it can.

    Quotes, percent signs, emoji and spaces are fine; the limit counts characters (code points), not
    bytes.
    """
    if not isinstance(name, str):
        return f"texts, not a {type(name).__name__}"
    if not 1 <= len(name) <= limit:
        return f"1 to {limit} characters, not {len(name)}"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "no lone surrogate, which databases can't store"
    return "no NUL character, which databases can't store" if "\0" in name else None


def _storable(name: str) -> str:
    fault = name_fault(name)
    if fault:
        raise ValueError(fault)
    return name


def _no_lane(name: str) -> str:
    if is_reserved(name):
        raise ValueError("no leading '!', which marks the lanes !parked and !suspect")
    return name


def table_fault(table: object) -> str | None:
    """Why `table` can't be the name of a main table, None if it can."""
    if not isinstance(table, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,47}", table):
        return "1 to 48 letters, digits and underscores, no digit first"
    if is_taken_name(table):
        return (
            f"neither {', '.join(shared_names())} nor a name that ends in {' or '.join(suffixes())}"
        )
    return None


def _free(table: str) -> str:
    fault = table_fault(table)
    if fault:
        raise ValueError(fault)
    return table


def _printable(name: str) -> str:
    if not re.fullmatch(r"[ -~]{1,63}", name):
        raise ValueError("1 to 63 printable ASCII characters")
    return name


Name = Annotated[str, AfterValidator(_storable)]
NodeName = Annotated[str, AfterValidator(_storable), AfterValidator(_no_lane)]
TableName = Annotated[str, AfterValidator(_free)]
Threads = Annotated[int, Field(ge=1, le=10_000)]
BatchSize = Annotated[int, Field(ge=1, le=10_000)]
Capacity = Annotated[int, Field(ge=1, le=1_000_000)]
Limit = Annotated[int, Field(ge=0, le=1_000_000)]
Seconds = Annotated[float, Field(gt=0, le=1e9)]


class NodeConfig(Settings):
    """Settings of a process as a node of one database: those that its buses and services there share.

    They must agree: a member whose node has other settings does not start.
    """

    environment_prefix: ClassVar[str] = "STICKYBUS_NODE_"
    toml_table: ClassVar[str] = "node"

    lease_seconds: Seconds = 15.0
    beat_interval_seconds: Seconds = Field(default_factory=lambda data: data["lease_seconds"] / 5)
    reap_period_seconds: Seconds = 5.0
    reap_batch_size: BatchSize = 200
    statement_timeout_seconds: Seconds = 30.0

    def check(self) -> None:
        """Raise ConfigurationError for values that are impossible together."""
        if 3 * self.beat_interval_seconds > self.lease_seconds:
            # A node whose beats lie further apart is no steady witness: it could never declare
            # another dead.
            raise combination(
                "beat_interval_seconds",
                self.beat_interval_seconds,
                f"at most a third of lease_seconds ({self.lease_seconds:g})",
            )


class QueueConfig(Settings):
    """What every queue has; use `BusConfig` or `NotificationConfig`, which know their defaults.

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
    application_name: Annotated[str, AfterValidator(_printable)] = "stickybus"

    @property
    def history_table(self) -> str:
        """Name of the table that finished entries move to."""
        return f"{self.table}_history"

    def check(self) -> None:
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

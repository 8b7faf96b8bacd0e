"""Settings: frozen, typed, and checked as a whole when they are built.

One object per bus or notification service; nothing is global. Values come from code, the environment, a TOML file
or the defaults here, in that order. None means "not set" at every stage and never hides a value of a later one.
"""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from queue_core.errors import ConfigurationError
from queue_core.retry import ImmediateRetries, RetryPolicy, policy_from_table
from sql.tables import SHARED_TABLES

MAX_NAME_LENGTH = 64
_OWN_TABLES = frozenset({"stickybus_schema", *(table.name for table in SHARED_TABLES)})


class Mode(StrEnum):
    """Who may run an entry, and how its node hears of it."""

    POLLING = "POLLING"
    """Any node that serves it; nodes poll."""
    STICKY_POLLING = "STICKY_POLLING"
    """The node that posted it; it polls, and is woken by its own commits."""
    STICKY_EVENTS = "STICKY_EVENTS"
    """The node that posted it; handed over from memory after the commit, without a claim."""


def name_fault(name: str, limit: int = MAX_NAME_LENGTH) -> str | None:
    """Why `name` can't be a node's, bus's or queue's name (or another of at most `limit` characters), None if it can.

    Quotes, percent signs, emoji and spaces are fine; the limit counts characters (code points), not bytes.
    """
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
    if name.startswith("!"):
        raise ValueError("no leading '!', which marks the lanes !parked and !suspect")
    return name


def _free(table: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,47}", table):
        raise ValueError("1 to 48 letters, digits and underscores, no digit first")
    if table.lower() in _OWN_TABLES or table.lower().endswith("_history"):
        raise ValueError(f"neither {', '.join(sorted(_OWN_TABLES))} nor a name that ends in _history")
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


class QueueConfig(BaseModel):
    """What every queue has; use `BusConfig` or `NotificationConfig`, which know their defaults.

    Raises ConfigurationError when built from a wrong value, an unknown key or an impossible combination.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False, validate_default=True
    )
    environment_prefix: ClassVar[str] = "STICKYBUS_"
    toml_table: ClassVar[str] = "queue"

    table: TableName
    node_name: NodeName | None = None
    mode: Mode
    handler_threads: Threads
    queue_capacity: Capacity
    max_entries_claimed: BatchSize = 100
    poll_interval_seconds: Seconds = 3.0
    max_failure_retries: Limit = 3
    retry: RetryPolicy = Field(default_factory=lambda data: ImmediateRetries(data["max_failure_retries"]))
    claim_seconds: Seconds = 300.0
    lease_seconds: Seconds = 15.0
    beat_interval_seconds: Seconds = Field(default_factory=lambda data: data["lease_seconds"] / 5)
    reap_period_seconds: Seconds = 5.0
    reap_batch_size: BatchSize = 10
    max_redispatches: Limit = 5
    shutdown_timeout_seconds: Annotated[float, Field(ge=0, le=1e9)] = 15.0
    max_payload_bytes: Annotated[int, Field(ge=1, le=1_000_000_000)] = 1_048_576
    max_execution_seconds: Seconds = 300.0
    unknown_retention_days: Annotated[float, Field(gt=0, le=36_525)] = 14.0
    statement_timeout_seconds: Seconds = 30.0
    application_name: Annotated[str, AfterValidator(_printable)] = "stickybus"

    @property
    def history_table(self) -> str:
        """Name of the table that finished entries move to."""
        return f"{self.table}_history"

    @classmethod
    def from_environment(cls, prefix: str | None = None, **overrides: Any) -> Self:
        """Settings from environment variables: `prefix` + the key in capitals; `overrides` win.

        `prefix` (default: the class's `environment_prefix`) must be this configuration's own: a variable that has
        it and names no key is an error, so that a typing mistake doesn't go unseen. The table RETRY is JSON.
        Raises ConfigurationError, which names the variable.
        """
        return cls._build(_Source.of_environment(cls, prefix), overrides)

    @classmethod
    def from_toml(
        cls, path: str | Path, table: str | None = None, *, prefix: str | None = None, **overrides: Any
    ) -> Self:
        """Settings from one table of a TOML file, under those of the environment and `overrides`.

        `table` (default: the class's `toml_table`) may be dotted. A file without the table sets nothing. An empty
        `prefix` leaves the environment out. Raises ConfigurationError, which names the file, if it can't be read.
        """
        source = _Source.of_toml(Path(path), table or cls.toml_table)
        if prefix != "":
            source = source.under(_Source.of_environment(cls, prefix))
        return cls._build(source, overrides)

    def with_changes(self, **changes: Any) -> Self:
        """A checked copy with `changes`; what was derived from a default is derived anew."""
        return type(self)(**{key: getattr(self, key) for key in self.model_fields_set} | changes)

    @classmethod
    def _build(cls, source: "_Source", overrides: Mapping[str, Any]) -> Self:
        given = {key: value for key, value in overrides.items() if value is not None}
        origins = {key: origin for key, origin in source.origins.items() if key not in given}
        return cls.model_validate({**source.values, **given}, context=origins)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        # Defined above _explain, which otherwise would not see its errors.
        if {"retry", "max_failure_retries"} <= self.model_fields_set:
            raise _combination(
                "max_failure_retries", self.max_failure_retries, "either it or retry, not both"
            )
        if 3 * self.beat_interval_seconds > self.lease_seconds:
            # A node whose beats lie further apart is no steady witness: it could never declare another dead.
            raise _combination(
                "beat_interval_seconds",
                self.beat_interval_seconds,
                f"at most a third of lease_seconds ({self.lease_seconds:g})",
            )
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, values: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        origins: dict[str, str] = info.context or {}
        if isinstance(values, dict):
            values = {key: value for key, value in values.items() if value is not None}
        try:
            return handler(values)
        except ValidationError as error:
            raise _explained(cls, error, origins) from error
        except ConfigurationError as error:
            raise _located(cls, str(error), error.key or cls.__name__, error.value, origins) from error

    @field_validator("mode", mode="before")
    @classmethod
    def _any_case(cls, mode: object) -> object:
        return mode.upper().replace("-", "_") if isinstance(mode, str) else mode

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


class _Source:
    """Values with the place that each came from."""

    def __init__(self, values: dict[str, Any], origins: dict[str, str]) -> None:
        self.values = values
        self.origins = origins

    def under(self, stronger: "_Source") -> "_Source":
        return _Source({**self.values, **stronger.values}, {**self.origins, **stronger.origins})

    @classmethod
    def of_environment(cls, config: type[QueueConfig], prefix: str | None) -> "_Source":
        prefix = config.environment_prefix if prefix is None else prefix
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for variable, text in os.environ.items():
            # An empty variable is how shells and containers say "not set".
            if variable.startswith(prefix) and text:
                key = variable.removeprefix(prefix).lower()
                values[key] = _from_json(variable, text) if key == "retry" else text
                origins[key] = f"environment variable {variable}"
        return cls(values, origins)

    @classmethod
    def of_toml(cls, path: Path, table: str) -> "_Source":
        try:
            values: Any = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"The configuration file {path} can't be read: {error}.", source=str(path)
            ) from error
        for part in table.split("."):
            values = values.get(part, {})
            if not isinstance(values, dict):
                raise ConfigurationError(
                    f"{table} in {path} is {values!r}, not a table.",
                    key=table,
                    value=values,
                    source=str(path),
                )
        return cls(values, dict.fromkeys(values, f"table [{table}] of {path}"))


def _from_json(variable: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{variable}={text!r} is not JSON: {error}. "
            'Allowed: a table such as {"kind": "exponential", "max_retries": 10}.',
            key="retry",
            value=text,
            source=variable,
        ) from error


def _combination(key: str, value: object, allowed: str) -> ConfigurationError:
    return ConfigurationError(f"{key}={value!r} is not allowed. Allowed: {allowed}.", key=key, value=value)


def _explained(
    config: type[QueueConfig], error: ValidationError, origins: Mapping[str, str]
) -> ConfigurationError:
    """One error for the first fault; pydantic's own text, with all of them, stays its cause."""
    fault = error.errors(include_url=False)[0]
    key, value = str(fault["loc"][0] if fault["loc"] else config.__name__), fault["input"]
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, config.model_fields, n=1)
        message = f"{key}={value!r} is no key" + (f"; did you mean {near[0]}?" if near else ".")
    elif fault["type"] == "missing":
        message = f"{key} is missing and has no default."
    else:
        message = f"{key}={value!r} is not allowed. Allowed: {_NOT_THE_RULE.sub('', fault['msg'])}."
    return _located(config, message, key, value, origins)


def _located(
    config: type[QueueConfig], message: str, key: str, value: object, origins: Mapping[str, str]
) -> ConfigurationError:
    source = origins.get(key.partition(".")[0])
    return ConfigurationError(
        f"{config.__name__}: {message}" + (f" It comes from {source}." if source else ""),
        key=key,
        value=value,
        source=source,
    )


# What pydantic says before the words that tell what is allowed.
_NOT_THE_RULE = re.compile(r"^(Input should be |Value error, )")

"""A subscriber: the handler of an entry, and its context."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Never, Protocol, TypeAlias, TypedDict

import msgspec
from sqlalchemy import Connection

from queue_core.errors import ConfigurationError
from queue_core.model.entry import Entry
from queue_core.model.names import name_fault
from queue_core.model.retry import RetryPolicy
from queue_core.running.serial import SerialGate
from queue_core.runtime.arguments import is_number, not_allowed, of_kind
from queue_core.runtime.shown import shown

LONGEST_NAME = 1_000
"""Characters of a subscriber's name.

By default, a name is that of a function, with its module and classes.
"""


class Backlogs(Protocol):
    """Knows the waiting entries of a queue."""

    def size(self, queue_name: str, connection: Connection | None = None) -> int:
        """The number of its due entries that don't run, read on `connection` if there is one."""
        ...


class EntryContext(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of the entry that a handler may know, besides the event.

    `attempt` counts from 1 and includes crashes of other nodes. Dates are aware, in UTC. `age` is
    the time from `created_date` to the start of this run, `lateness` that from `effective_date`. A
    retry moves `effective_date`; the copy of a dead node's entry keeps `created_date`.
    `connection` is set for exactly-once handlers only. Its writes commit together with the entry's
    outcome.
    """

    record_id: int
    queue_name: str
    class_name: str
    attempt: int
    error_count: int
    redispatch_count: int
    search_key1: int | str | None
    search_key2: int | str | None
    user_token: str | None
    future_user_token: str | None
    headers: dict[str, str]
    created_date: datetime
    effective_date: datetime
    age: timedelta = timedelta()
    lateness: timedelta = timedelta()
    connection: Connection | None = None
    backlogs: Backlogs | None = None
    """Answers `queue_size`."""

    def queue_size(self) -> int:
        """Count the due entries of this queue. Each call reads the database.

        An `async def` handler calls it in a thread: `await asyncio.to_thread(context.queue_size)`.

        Returns:
            The entries that are due and that no node has claimed, counted up to some 10,000 of the
            table. Those that a sticky bus has taken into its memory are not among them. 0 for a
            context that a test has made.

        Raises:
            DatabaseUnreachableError: The database does not answer.
        """
        return 0 if self.backlogs is None else self.backlogs.size(self.queue_name, self.connection)


class ExactlyOnceContext(EntryContext, frozen=True, kw_only=True):
    """The context of an exactly-once handler, whose `connection` is always there."""

    connection: Connection


AnyHandler: TypeAlias = (
    Callable[[Never], object]
    | Callable[[Never, EntryContext], object]
    | Callable[[Never, ExactlyOnceContext], object]
)
"""A handler of events of some type; it may be `async def`, whose coroutine is an object too."""


class SubscriberOptions(TypedDict, total=False):
    """The way to run a handler, besides `exactly_once`."""

    name: str | None
    serial: bool
    retry: RetryPolicy | None
    max_run_seconds: float | None
    success_on: Collection[type[Exception]]


def context_of(
    entry: Entry, started_date: datetime, backlogs: Backlogs | None = None
) -> EntryContext:
    """The context of `entry` for its handlers, in a run that began at `started_date`."""
    return EntryContext(
        record_id=entry.record_id,
        queue_name=entry.queue_name,
        class_name=entry.class_name,
        attempt=entry.error_count + entry.redispatch_count + 1,
        error_count=entry.error_count,
        redispatch_count=entry.redispatch_count,
        search_key1=entry.search_key1,
        search_key2=entry.search_key2,
        user_token=entry.user_token,
        future_user_token=entry.future_user_token,
        headers=entry.captured,
        created_date=entry.created_date,
        effective_date=entry.effective_date,
        # The clocks of two nodes differ.
        age=max(timedelta(), started_date - entry.created_date),
        lateness=max(timedelta(), started_date - entry.due_since),
        backlogs=backlogs,
    )


def with_connection(context: EntryContext, connection: Connection) -> ExactlyOnceContext:
    """The context of an exactly-once handler, with the connection to write on."""
    facts = msgspec.structs.asdict(context)
    return ExactlyOnceContext(**{**facts, "connection": connection})


@dataclass(eq=False)
class Subscriber:
    """One handler and how it wants to be run.

    `name` identifies it across restarts and nodes. A retry runs only the names that have not
    succeeded yet.
    """

    name: str
    handler: Callable[..., Any]
    serial: bool = False
    exactly_once: bool = False
    retry: RetryPolicy | None = None
    max_run_seconds: float | None = None
    success_on: Collection[type[Exception]] = ()
    succeeds_on: tuple[type[Exception], ...] = field(init=False)
    takes_context: bool = field(init=False)
    is_async: bool = field(init=False)
    gate: SerialGate | None = field(init=False)
    """Lets one call through at a time, if it is serial."""

    def __post_init__(self) -> None:
        fault = name_fault(self.name, LONGEST_NAME)
        if fault:
            raise ConfigurationError(
                f"{shown(self.name)} can't be a subscriber's name: allowed are {fault}.",
                key="name",
                value=self.name,
            )
        self.name = str.__str__(self.name)
        if self.retry is not None:
            of_kind(self.retry, RetryPolicy, key="retry")
        limit = self.max_run_seconds
        if limit is not None and not (is_number(limit) and limit > 0):
            raise not_allowed("max_run_seconds", limit, "a number of seconds above 0")
        self.succeeds_on = () if self.success_on == () else _success_types(self.success_on)
        function = self.handler if inspect.isroutine(self.handler) else type(self.handler).__call__
        self.is_async = inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(
            function
        )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                f"{self.name} has a yield: it would return a generator, and its body would not "
                "run. Write a plain function or a coroutine function.",
                key="handler",
            )
        self.takes_context = _parameters(self.handler, self.name) > 1
        self.gate = SerialGate() if self.serial else None
        if self.exactly_once and (self.is_async or not self.takes_context):
            raise ConfigurationError(
                f"{self.name} can't be exactly_once: such a handler is a plain function of (event, "
                "context), and writes through context.connection.",
                key="exactly_once",
            )


def _success_types(given: object) -> tuple[type[Exception], ...]:
    """The types of exceptions that mean success.

    Raises ConfigurationError for a type that a mistake in the handler would raise as well.
    """
    if isinstance(given, Collection) and not isinstance(given, str | bytes):
        types = tuple(given)
        if all(
            isinstance(one, type) and issubclass(one, Exception) and one is not Exception
            for one in types
        ):
            return types
    raise not_allowed(
        "success_on",
        given,
        "a collection of exception types, such as (IntegrityError,), without Exception itself, "
        "which would make a success of every failure",
    )


def _parameters(handler: Callable[..., Any], name: str) -> int:
    """The number of positional arguments that `handler` takes, 1 or 2.

    Raises ConfigurationError for any other number.
    """
    if not callable(handler):
        raise _no_handler(handler)
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError) as error:
        raise _no_handler(handler) from error
    positional = [p for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    required = [p for p in positional if p.default is p.empty]
    keyword = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    count = (
        max(len(required), 1)
        if positional or any(p.kind is p.VAR_POSITIONAL for p in parameters)
        else 0
    )
    if count not in {1, 2} or keyword:
        raise ConfigurationError(
            f"{name} must take (event) or (event, context), it is {inspect.signature(handler)}.",
            key="handler",
        )
    return 2 if len(positional) > 1 and positional[1].name == "context" else count


def _no_handler(handler: object) -> ConfigurationError:
    return ConfigurationError(
        f"{shown(handler)} is not a handler: it can't be called.", key="handler"
    )


class Router(Protocol):
    """The router finds the handlers of an entry.

    A bus and a notification service are different routers: the engine knows neither, and asks this.
    """

    def subscribers(self, queue_name: str, class_name: str) -> Sequence[Subscriber] | None:
        """The subscribers that handle entries of this queue and type now, perhaps none.

        None if queue or type are not known here; such entries are parked.

        Raises ConfigurationError if the name has two types.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """The served subscribers, for the node's row: plain JSON."""
        ...

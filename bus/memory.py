"""The in-memory bus, which has no database.

It is for tests, and for events that may be lost.

It respects the caller's transaction as far as SQLAlchemy's events show it. Events that are posted
on a SQLAlchemy connection are delivered when that begins to commit, and dropped when it, or a
savepoint around them, rolls back. A COMMIT that then fails is not noticed; only the persistent bus
proves a commit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack

from bus.event_bus import EventBus
from bus.memory_commits import at_commit, connection_of
from bus.memory_events import MemoryEvents
from bus.memory_refusals import refuse_links
from bus.subscriptions import Others
from queue_core.errors import ConfigurationError
from queue_core.model.captured_context import CapturedContext
from queue_core.model.codec import Codec
from queue_core.model.config import BusConfig
from queue_core.model.config_keys import BusSettings
from queue_core.model.entry import Entry
from queue_core.model.known_codecs import Codecs
from queue_core.model.lanes import ANY_NODE
from queue_core.model.posting import Posting
from queue_core.model.settings import configured
from queue_core.model.states import States
from queue_core.running.admission import QueueAdmission, unlimited
from queue_core.running.context_restored import restoring
from queue_core.running.handler_pool import HandlerPool
from queue_core.running.pauses_in_force import PausesInForce
from queue_core.running.runner import Runner
from queue_core.running.subscriber import Subscriber
from queue_core.runtime.arguments import of_kind, wait_seconds
from queue_core.runtime.callers import CallersConnection
from queue_core.runtime.clock import Clock, SystemClock
from queue_core.storage.rows import Rows


class _Unleased:
    """No other process can take events out of this one's memory."""

    def may_start(self, epoch: int) -> bool:
        """Always."""
        return True


class InMemoryBus(EventBus):
    """Events, handlers and retries as on `PersistentBus`; everything is gone when the process ends.

    Retries that a policy puts off run at once: there is no timer here. `exactly_once` handlers are
    refused (ConfigurationError): there is no database to write to. `max_run_seconds` is not
    enforced: no other run could take the event over. A post with an idempotency key, `order_key`,
    `priority`, `limit_key`, `group` or `after` is refused (InvalidPostError). `connection=` takes a
    SQLAlchemy Connection or Session.

    Args:
        config: The configuration. Default: `BusConfig()`.
        clock: The time of dates. Default: this machine's.
        codec: Writes payloads. Default: `JsonCodec()`.
        type_codecs: Codecs that write events of a type and its subtypes, or of a stored name.
            Default: none.
        read_codecs: Codecs that only read older payloads. JSON is always read. Default:
            none.
        context: Context variables of texts that go with each entry: the values at a post are set
            again around its handlers. Default: none.
        settings: Keys of the configuration, which win over `config`.

    Raises:
        ConfigurationError: An argument is not allowed.
    """

    def __init__(
        self,
        config: BusConfig | None = None,
        *,
        clock: Clock | None = None,
        codec: Codec | None = None,
        type_codecs: Mapping[type | str, Codec] | None = None,
        read_codecs: Iterable[Codec] = (),
        context: Iterable[ContextVar[str]] = (),
        **settings: Unpack[BusSettings],
    ) -> None:
        super().__init__(configured(BusConfig, config, settings), shared=False)
        if clock is not None:
            of_kind(clock, Clock, key="clock")
        self._clock = clock or SystemClock()
        self._codecs = Codecs(self._types, codec, read_codecs, type_codecs)
        self._context = CapturedContext(context)
        self._rows = Rows(
            self.config, self._clock, self._types, self._codecs, context=self._context
        )
        self._ids = itertools.count(1)
        self._events = MemoryEvents(self._clock, self._new_pool)

    def _new_pool(self) -> HandlerPool:
        nothing_paused = PausesInForce(self._clock)
        runner = Runner(
            self.config,
            self._clock,
            self._codecs,
            QueueAdmission(self._subscriptions, nothing_paused, unlimited),
            _Unleased(),
            pauses=nothing_paused,
            validators=self._types.validators,
            backlogs=self._events,
            complete=self._events.complete,
            around_handler=restoring(self._context),
        )
        return HandlerPool(self.config, self._clock, self._subscriptions, runner)

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Deliver the events that were posted, and from now on each new one.

        Returns:
            Itself.

        Raises:
            LifecycleError: It runs already.
        """
        self._events.start()
        return self

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Let running handlers finish. Events that have not started wait for the next start.

        Args:
            timeout_seconds: Seconds to wait for running handlers, 0 or more. Default: the
                configuration's `shutdown_timeout_seconds`.

        Returns:
            False if handlers still ran then.

        Raises:
            ConfigurationError: The time is not allowed.
        """
        limit = self.config.shutdown_timeout_seconds if timeout_seconds is None else timeout_seconds
        return self._events.stop(wait_seconds(limit, key="timeout_seconds"))

    close = stop

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def wait_until_idle(self, timeout_seconds: float = 10.0) -> None:
        """Block until every delivered event has ended.

        Args:
            timeout_seconds: The longest wait, 0 or more. Default: 10.

        Raises:
            TimeoutError: Some had not ended then.
            ConfigurationError: The time is not allowed.
        """
        self._events.wait_until_idle(wait_seconds(timeout_seconds, key="timeout_seconds"))

    # -- subscribe and post -----------------------------------------------------------------------

    def _add(self, event: type | str | Others, subscriber: Subscriber) -> None:
        if subscriber.exactly_once:
            raise ConfigurationError(
                "exactly_once needs the persistent bus: in memory there is no transaction.",
                key="exactly_once",
            )
        super()._add(event, subscriber)

    def _post(self, postings: Sequence[Posting], connection: CallersConnection | None) -> list[int]:
        refuse_links(self.config.name, postings, self._types.after_rules)
        rows = self._rows.rows(self.config.name, postings, creator="", lane=ANY_NODE, claimed=True)
        # Nothing waits for its date here.
        entries = [self._rows.entry(next(self._ids), row) for row in rows]
        if connection is None:
            self._events.deliver(entries)
        else:
            at_commit(connection_of(connection), lambda: self._events.deliver(entries))
        return [entry.record_id for entry in entries]

    def _now(self, connection: CallersConnection | None) -> datetime:
        return self._clock.now()

    # -- read -------------------------------------------------------------------------------------

    def find(self, *, states: States | None = None) -> list[Entry]:
        """Find events that have not ended.

        Args:
            states: Only those in these states. Default: all.

        Returns:
            The events, by id.

        Raises:
            InvalidPostError: A state is none.
        """
        return self._events.live(states)

    def history(self, *, states: States | None = None) -> list[Entry]:
        """Find events that have ended.

        Args:
            states: Only those that ended so. Default: all.

        Returns:
            The events, by id.

        Raises:
            InvalidPostError: A state is none.
        """
        return self._events.ended(states)

    def truncate_history(self) -> int:
        """Forget the events that have ended.

        Returns:
            Their number.
        """
        return self._events.forget_ended()

"""The notification service: named queues, each `service:queue`, on one pair of tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Self, Unpack

from prometheus_client import CollectorRegistry
from sqlalchemy import URL, Engine

from notifications.created_queues import CreatedQueues
from notifications.recurring_schedules import RecurringSchedules
from queue_core.bulk_changes import BulkChanges
from queue_core.engine import QueueEngine
from queue_core.face.face import Face
from queue_core.model.captured_context import CapturedContext
from queue_core.model.codec import Codec
from queue_core.model.config import NotificationConfig
from queue_core.model.config_keys import QueueSettings
from queue_core.model.known_codecs import Codecs
from queue_core.model.settings import configured
from queue_core.old_names import OldServiceNames
from queue_core.runtime.clock import Clock


class NotificationService(CreatedQueues, Face, BulkChanges, OldServiceNames):
    """Queues of notifications, delivered at their time.

    Args:
        database: A URL, as a text or SQLAlchemy's, or an Engine, whose URL and way to connect are
            taken.
        config: The configuration. Default: `NotificationConfig()`.
        clock: The time by which notifications are due. Default: the database's.
        metrics_registry: The registry of the metrics. Default: prometheus-client's own.
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
        DatabaseUnreachableError: The database does not answer.
        SchemaError: The tables are missing, or don't fit this version.

    Example:
        >>> service = NotificationService("sqlite:///shop.db", handler_threads=4)
    """

    def __init__(
        self,
        database: str | URL | Engine,
        config: NotificationConfig | None = None,
        *,
        clock: Clock | None = None,
        metrics_registry: CollectorRegistry | None = None,
        codec: Codec | None = None,
        type_codecs: Mapping[type | str, Codec] | None = None,
        read_codecs: Iterable[Codec] = (),
        context: Iterable[ContextVar[str]] = (),
        **settings: Unpack[QueueSettings],
    ) -> None:
        self.config = configured(NotificationConfig, config, settings)
        CreatedQueues.__init__(self)
        engine = QueueEngine(
            database,
            self.config,
            self._served,
            self._types,
            clock=clock,
            metrics_registry=metrics_registry,
            codecs=Codecs(self._types, codec, read_codecs, type_codecs),
            context=CapturedContext(context),
        )
        Face.__init__(self, engine)
        BulkChanges.__init__(self, engine, None)
        self._schedules = RecurringSchedules(engine, self._served.names)

    def start(self) -> Self:
        """Register this process as a node, and start all queues, those created later as well.

        Returns:
            Itself.

        Raises:
            NodeNameTakenError: A live node has the configured `node_name`.
            LifecycleError: It is started already, or another of this process serves the table.
            ConfigurationError: Its `node` settings differ from those of the process's node.
            ForkedError: It was made in the parent of this process.
            DatabaseUnreachableError: The database does not answer.
        """
        # First: a node that knows its queues not yet would set aside their due entries.
        with self._lock:
            started, self._starts = self._starts, True
        begun = [queue for queue in self.queues() if not queue.started]
        try:
            for queue in begun:
                queue._started = True
            super().start()
        except BaseException:
            self._starts = started
            for queue in begun:
                queue._started = False
            raise
        try:
            self._schedules.start()
        except BaseException:  # no thread more, mostly
            self.stop()
            raise
        return self

    def _fire_due(self) -> None:
        """Fire the recurring schedules that are due now, once, for the test kit."""
        self._schedules.turn()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Stop delivering. Running handlers finish; entries that have not started are given back.

        Queues stay created, and start again with the service.

        Args:
            timeout_seconds: Seconds to wait for running handlers, 0 or more. Default: the
                configuration's `shutdown_timeout_seconds`.

        Returns:
            False if handlers still ran then, or if outcomes could not be written.

        Raises:
            ConfigurationError: The time is not allowed.
        """
        self._starts = False
        self._schedules.stop()
        ended = super().stop(timeout_seconds)
        for queue in self.queues():
            queue._started = False
        return ended

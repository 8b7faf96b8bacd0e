"""The engine of one bus or service, on a database whose schema was checked."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from sqlalchemy import URL
from sqlalchemy import Engine as SqlalchemyEngine

from queue_core.metrics import Metrics
from queue_core.model.captured_context import NO_CONTEXT, CapturedContext
from queue_core.model.config import QueueConfig
from queue_core.model.entry import Entry
from queue_core.model.event_types import EventTypes
from queue_core.model.known_codecs import Codecs
from queue_core.opening import open_tables
from queue_core.parts import Parts
from queue_core.reading.depths import depths
from queue_core.reading.obstacles import obstacles
from queue_core.running.subscriber import Router
from queue_core.runtime.arguments import function, of_kind
from queue_core.runtime.clock import Clock
from queue_core.storage.groups import incomplete_groups
from queue_core.storage.store import Store
from queue_core.storage.transactions import clock_of


class QueueEngine:
    """Raises ConfigurationError, DatabaseUnreachableError, or a SchemaError."""

    def __init__(
        self,
        database: str | URL | SqlalchemyEngine,
        config: QueueConfig,
        router: Router,
        types: EventTypes,
        *,
        clock: Clock | None = None,
        metrics_registry: CollectorRegistry | None = None,
        codecs: Codecs | None = None,
        context: CapturedContext = NO_CONTEXT,
    ) -> None:
        if clock is not None:
            of_kind(clock, Clock, key="clock")
        if metrics_registry is not None:
            of_kind(metrics_registry, CollectorRegistry, key="metrics_registry")
        self.config = config
        self.router = router
        self.types = types
        self.codecs = Codecs(types) if codecs is None else codecs
        self.database = open_tables(database, config)
        self.store = Store(
            self.database,
            config,
            clock or clock_of(self.database),
            types,
            self.codecs,
            context=context,
        )
        self.metrics = Metrics(config.table, metrics_registry)
        parts = Parts(self.store, router, self.metrics)
        self.lifecycle, self.poster, self.parked = parts.lifecycle, parts.poster, parts.parked
        self.backlog = parts.backlog
        self._failed_hooks = parts.failed_hooks
        self.metrics.watch(
            self.lifecycle.reading,
            lambda: depths(self.store, router.describe()["queues"]),
            lambda: obstacles(self.store, router.describe()["queues"]),
            lambda: incomplete_groups(self.store),
        )

    def on_failed(self, hook: Callable[[Entry, str], None]) -> Callable[[Entry, str], None]:
        """Call `hook(entry, last_error)` after an entry has ended FAILED.

        Returns `hook`, so that this serves as a decorator.
        """
        function(hook, key="hook")
        self._failed_hooks.hooks.append(hook)
        return hook

    def close(self) -> None:
        """Stop if it runs, and close our connections.

        In a child process of a fork only its memory is let go.
        """
        if not self.store.forked:
            self.lifecycle.stop()
            self.lifecycle.hints.close()
            self.metrics.close()
        self.database.close()

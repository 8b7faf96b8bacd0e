"""The persistent event bus: an event is a row first, and is delivered after the commit.

`post` and its like are in `event_bus`, the face that it shares with the bus in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Unpack

from prometheus_client import CollectorRegistry
from sqlalchemy import URL, Engine

from bus.event_bus import EventBus
from bus.subscriptions import Others
from queue_core.bulk_changes import BulkChanges
from queue_core.engine import QueueEngine
from queue_core.face.face import Face
from queue_core.grouping import Grouping
from queue_core.limiting import Limiting
from queue_core.model.captured_context import CapturedContext
from queue_core.model.codec import Codec
from queue_core.model.config import BusConfig
from queue_core.model.config_keys import BusSettings
from queue_core.model.known_codecs import Codecs
from queue_core.model.mode import Mode
from queue_core.model.posting import Posting
from queue_core.model.settings import configured
from queue_core.pausing import Pausing
from queue_core.queue_keys import QueueKeys
from queue_core.queue_reads import Reads
from queue_core.running.subscriber import Subscriber
from queue_core.runtime.callers import CallersConnection
from queue_core.runtime.clock import Clock


class PersistentBus(EventBus, Face, Reads, Pausing, Limiting, QueueKeys, Grouping, BulkChanges):
    """An event bus on a SQL database.

    The bus opens its own connections. An SQLite file gets its tables at once; another database must
    have them (`stickybus schema create`). Posting works before `start`, too: until then this
    process is not a node, and any node of the bus runs its events.

    Args:
        database: A URL, as a text or SQLAlchemy's, or an Engine, whose URL and way to connect are
            taken.
        config: The configuration. Default: `BusConfig()`.
        clock: The time by which entries are due. Default: the database's.
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
        >>> bus = PersistentBus("sqlite:///shop.db", handler_threads=4)
    """

    def __init__(
        self,
        database: str | URL | Engine,
        config: BusConfig | None = None,
        *,
        clock: Clock | None = None,
        metrics_registry: CollectorRegistry | None = None,
        codec: Codec | None = None,
        type_codecs: Mapping[type | str, Codec] | None = None,
        read_codecs: Iterable[Codec] = (),
        context: Iterable[ContextVar[str]] = (),
        **settings: Unpack[BusSettings],
    ) -> None:
        config = configured(BusConfig, config, settings)
        EventBus.__init__(self, config, shared=config.mode is Mode.POLLING)
        engine = QueueEngine(
            database,
            self.config,
            self._subscriptions,
            self._types,
            clock=clock,
            metrics_registry=metrics_registry,
            codecs=Codecs(self._types, codec, read_codecs, type_codecs),
            context=CapturedContext(context),
        )
        Face.__init__(self, engine)
        Reads.__init__(self, engine, self.config.name)
        Pausing.__init__(self, engine, self.config.name)
        Limiting.__init__(self, engine, self.config.name)
        QueueKeys.__init__(self, engine, self.config.name)
        Grouping.__init__(self, engine, self.config.name)
        BulkChanges.__init__(self, engine, self.config.name)

    def _add(self, event: type | str | Others, subscriber: Subscriber) -> None:
        super()._add(event, subscriber)
        self._engine.parked.look_at_all()

    def _post(self, postings: Sequence[Posting], connection: CallersConnection | None) -> list[int]:
        return self._engine.poster.post(self.config.name, postings, connection)

    def _now(self, connection: CallersConnection | None) -> datetime:
        return self._engine.store.now(connection)

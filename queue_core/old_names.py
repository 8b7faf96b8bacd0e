"""The former public names of buses, services and queues; all of them go with 1.0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar, Unpack

from queue_core.engine import QueueEngine
from queue_core.model.event_types import EventTypes
from queue_core.running.subscriber import AnyHandler, Subscriber, SubscriberOptions
from queue_core.runtime.deprecation import OldName, deprecated

H = TypeVar("H", bound=AnyHandler)


class OldBusNames:
    """Those of a bus."""

    unregister: OldName[Callable[[AnyHandler], bool]] = OldName("unsubscribe")
    types: OldName[EventTypes] = OldName("_types", "register_event")

    def register(
        self,
        event: type | str,
        handler: H,
        *,
        exactly_once: bool = False,
        **options: Unpack[SubscriberOptions],
    ) -> H:
        """Deprecated: `subscribe(event, handler)`."""
        deprecated("register", "subscribe(event, handler)")
        # Its overloads tie the event's type to the handler's, which this signature does not.
        subscribe: Callable[..., None] = attrgetter("subscribe")(self)
        subscribe(event, handler, exactly_once=exactly_once, **options)
        return handler


class OldFaceNames:
    """Those of a bus and of a service, which stand on an engine."""

    engine: OldName[QueueEngine] = OldName("_engine", "the calls of the bus or service")


class OldServiceNames:
    """Those of a service."""

    types: OldName[EventTypes] = OldName("_types", "the event_types of create_queue")
    subscribers: OldName[Callable[[str, str], Sequence[Subscriber] | None]] = OldName(
        "_served.subscribers", "get_queue"
    )
    describe: OldName[Callable[[], Mapping[str, object]]] = OldName("_served.describe", "queues")
    fire_due: OldName[Callable[[], None]] = OldName("_fire_due", "stickybus.testing.drain")


class OldQueueNames:
    """Those of a queue."""

    subscriber: OldName[Subscriber] = OldName("_subscriber", "the arguments of create_queue")
    accepts: OldName[frozenset[str] | None] = OldName("_accepts", "the arguments of create_queue")

"""Subscriptions: handlers by event type (its subtypes too) or by event name."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from queue_core.cluster.subscriber_sets import published
from queue_core.errors import ConfigurationError
from queue_core.model.event_types import EventTypes
from queue_core.running.subscriber import AnyHandler, Subscriber
from queue_core.runtime.exact import exact_text
from queue_core.runtime.lock import Lock


class Others(Enum):
    """Stands for the events that have no subscriber."""

    OTHERS = "others"


OTHERS = Others.OTHERS


class Subscriptions:
    """The subscribers of one bus; a `queue_core.running.subscriber.Router` for its queue.

    Safe to use from several threads.
    """

    def __init__(self, queue_name: str, types: EventTypes, *, shared: bool) -> None:
        """`shared`: other nodes may run these events, so that only subscribed names are known."""
        self._queue_name = queue_name
        self._types = types
        self._shared = shared
        self._wanted = set[type | str]()
        self._subscribed: list[tuple[type | str, Subscriber]] = []
        self._of_others: tuple[Subscriber, ...] = ()
        """The subscriber of all events that have no other one; an empty tuple without it."""
        self._resolved: dict[str, tuple[Subscriber, ...]] = {}
        self._lock = Lock()

    def add(self, event: type | str | Others, subscriber: Subscriber) -> None:
        """Subscribe to a type, a name, or all events that have no other subscriber.

        Raises ConfigurationError if another handler has the subscriber's name.
        """
        if event is OTHERS:
            with self._lock:
                self._check_name(subscriber)
                self._of_others, self._resolved = (subscriber,), {}
            return
        if isinstance(event, str):
            event = exact_text(event) or ""
            if not self._types.knows(event):
                self._types.register_name(event)
        else:
            self._types.register(event)
        with self._lock:
            self._check_name(subscriber)
            self._subscribed.append((event, subscriber))
            self._wanted.add(event)
            self._resolved = {}

    def _check_name(self, subscriber: Subscriber) -> None:
        for _, other in self._subscribed:
            if other.name == subscriber.name and other.handler != subscriber.handler:
                raise ConfigurationError(
                    f"bus {self._queue_name!r}: two handlers are named {subscriber.name!r}. "
                    "Retries tell subscribers apart by name: give one of them name=….",
                    key="name",
                    value=subscriber.name,
                )

    def remove(self, handler: AnyHandler) -> bool:
        """End all subscriptions of `handler`; False if it had none. Its event types stay known."""
        with self._lock:
            kept = [
                subscribed for subscribed in self._subscribed if subscribed[1].handler != handler
            ]
            removed = len(kept) < len(self._subscribed)
            if handler in [subscriber.handler for subscriber in self._of_others]:
                self._of_others, removed = (), True
            self._subscribed, self._resolved = kept, {}
        return removed

    def subscribers(self, queue_name: str, class_name: str) -> Sequence[Subscriber] | None:
        """See `Router`. A subscriber reached in two ways (by a type and its subtype) is one."""
        if queue_name != self._queue_name or not self._is_known(class_name):
            return None
        found = self._resolved.get(class_name)
        if found is None:
            with self._lock:
                found = self._resolve(class_name)
                self._resolved[class_name] = found
        return found

    def _is_known(self, class_name: str) -> bool:
        if self._of_others:
            return True
        return self._was_wanted(class_name) if self._shared else self._types.knows(class_name)

    def _was_wanted(self, class_name: str) -> bool:
        return class_name in self._wanted or not self._wanted.isdisjoint(self._ancestry(class_name))

    def _ancestry(self, class_name: str) -> Sequence[type]:
        event_type = self._types.type_of(class_name)
        return event_type.__mro__ if event_type is not None else ()

    def _resolve(self, class_name: str) -> tuple[Subscriber, ...]:
        ancestry = self._ancestry(class_name)
        found = {
            subscriber.name: subscriber
            for event, subscriber in self._subscribed
            if event == class_name or event in ancestry
        }
        return tuple(found.values()) or self._of_others

    def describe(self) -> dict[str, Any]:
        """See `Router`."""
        types = sorted(self._types.names())
        subscribers = {
            class_name: published(subscriber.name for subscriber in found)
            for class_name in types
            if (found := self._found(class_name)) is not None
        }
        return {"queues": [self._queue_name], "types": types, "subscribers": subscribers}

    def _found(self, class_name: str) -> Sequence[Subscriber] | None:
        try:
            return self.subscribers(self._queue_name, class_name)
        except ConfigurationError:
            return None  # a name of two types: its events end FAILED


def subscriber_name(handler: AnyHandler) -> str:
    """Module and qualified name of a function, or of a callable object's class."""
    named = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{named.__module__}.{named.__qualname__}"

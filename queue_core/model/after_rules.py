"""Functions of events that say which entries they wait for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

import msgspec

from queue_core.errors import InvalidPostError
from queue_core.model.posting import Awaited, Posting
from queue_core.runtime.arguments import function, not_allowed

After: TypeAlias = Callable[[Any], Collection[Awaited]]
"""A function of an event: the entries that it waits for, as in `Posting.after`, if for any."""


class AfterRules:
    """The functions of one bus or service. Safe to use from several threads."""

    def __init__(self) -> None:
        self.declared = False
        """Whether there is or was a function: else no posting needs a look."""
        self._of_types: dict[type | str, After] = {}
        self._of_queues: dict[str, After] = {}

    def set_for_type(self, event_type: type | str, after: After) -> None:
        """Events of a type and its subtypes, or plain dicts of a name.

        Raises ConfigurationError.
        """
        self._of_types[event_type] = _checked(after)
        self.declared = True

    def set_for_queue(self, queue_name: str, after: After | None) -> None:
        """The rule of a queue's entries; None: none from now on. Raises ConfigurationError."""
        if after is None:
            self._of_queues.pop(queue_name, None)
            return
        self._of_queues[queue_name] = _checked(after)
        self.declared = True

    def applied(self, queue_name: str, postings: Sequence[Posting]) -> list[Posting]:
        """The postings, with the waits of their events if they don't say any themselves.

        Raises InvalidPostError.
        """
        return [
            posting if posting.after is not None else self._applied(queue_name, posting)
            for posting in postings
        ]

    def _applied(self, queue_name: str, posting: Posting) -> Posting:
        event = posting.event
        of_queue = self._of_queues.get(queue_name)
        if of_queue is not None:
            return msgspec.structs.replace(posting, after=_answer(of_queue, event) or None)
        keys = (posting.event_name,) if isinstance(event, dict) else type(event).__mro__
        for key in keys:
            rule = None if key is None else self._of_types.get(key)
            if rule is not None:
                return msgspec.structs.replace(posting, after=_answer(rule, event) or None)
        return posting


def _checked(after: After) -> After:
    function(after, key="after")
    if inspect.iscoroutinefunction(after):
        raise not_allowed("after", after, "a plain function of the event, not a coroutine")
    return after


def _answer(rule: After, event: object) -> Collection[Awaited]:
    try:
        return list(rule(event))
    except Exception as error:
        called = getattr(rule, "__qualname__", type(rule).__qualname__)
        raise InvalidPostError(
            f"{type(event).__qualname__}: {called} could not tell which entries it waits for: "
            f"{type(error).__name__}: {error}. Nothing was written.",
            key="after",
        ) from error

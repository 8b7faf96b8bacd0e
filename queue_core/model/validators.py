"""Predicates that say which events may be posted and run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from queue_core.errors import InvalidEventError
from queue_core.runtime.arguments import function, not_allowed

Validate: TypeAlias = Callable[[Any], object]
"""A predicate: an event is valid if the answer is true; an exception is the reason why it isn't."""


class Validators:
    """The predicates of one bus or service. Safe to use from several threads."""

    def __init__(self) -> None:
        self.declared = False
        """Whether there is or was a predicate: else no event needs a look."""
        self._of_types: dict[type | str, Validate] = {}
        self._of_queues: dict[str, Validate] = {}

    def set_for_type(self, event_type: type | str, validate: Validate) -> None:
        """Events of a type and its subtypes, or plain dicts of a name.

        Raises ConfigurationError.
        """
        _check(validate)
        self._of_types[event_type] = validate
        self.declared = True

    def set_for_queue(self, queue_name: str, validate: Validate | None) -> None:
        """All events of a queue; None: all are valid.

        Raises ConfigurationError.
        """
        if validate is None:
            self._of_queues.pop(queue_name, None)
            return
        _check(validate)
        self._of_queues[queue_name] = validate
        self.declared = True

    def check(
        self, queue_name: str, class_name: str, event: object, *, record_id: int | None = None
    ) -> None:
        """Ask each predicate that is for this event.

        Raises InvalidEventError. `record_id`: of the entry that is about to run; None at a post.
        """
        for validate in self._for(queue_name, class_name, event):
            cause: Exception | None = None
            try:
                if validate(event):
                    continue
                reason = "answered that it is not valid"
            except Exception as error:  # noqa: BLE001 -- the user's code, whose error is the reason
                cause, reason = error, f"raised {type(error).__name__}: {error}"
            called = getattr(validate, "__qualname__", type(validate).__qualname__)
            subject, consequence = (
                (class_name, "Nothing was written.")
                if record_id is None
                else (f"Entry {record_id} ({class_name})", "No handler was called.")
            )
            raise InvalidEventError(
                f"{queue_name}: {subject} is not valid: {called} {reason}. {consequence}",
                queue_name=queue_name,
                class_name=class_name,
                record_id=record_id,
                key="event",
            ) from cause

    def _for(self, queue_name: str, class_name: str, event: object) -> Iterator[Validate]:
        of_queue = self._of_queues.get(queue_name)
        if of_queue is not None:
            yield of_queue
        keys = (class_name,) if isinstance(event, dict) else type(event).__mro__
        for key in keys:
            of_type = self._of_types.get(key)
            if of_type is not None:
                yield of_type


def _check(validate: Validate) -> None:
    function(validate, key="validate")
    if inspect.iscoroutinefunction(validate):
        raise not_allowed("validate", validate, "a plain function of the event, not a coroutine")

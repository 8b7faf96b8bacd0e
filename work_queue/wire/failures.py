"""Errors on the wire: what a call raised in the service is raised at the client."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from queue_core import errors
from work_queue.faults import DependencyError, Fault
from work_queue.wire.mirrors import from_wire, mirror, to_wire

_PLAIN = str | int | float | bool
"""Facts that travel."""
RAISED: tuple[type[errors.StickybusError], ...] = (
    errors.InvalidRequestError,
    errors.InvalidPostError,
    errors.NaiveDateTimeError,
    errors.NameTooLongError,
    errors.PayloadError,
    errors.PayloadNotSerialisableError,
    errors.PayloadTooLargeError,
    errors.PayloadNotDecodableError,
    errors.LifecycleError,
    errors.ConfigurationError,
    errors.DatabaseUnreachableError,
    errors.CommitUnknownError,
    DependencyError,
)
"""What calls raise on purpose."""


class Failure(Struct, omit_defaults=True, frozen=True):
    """An error: the name of its class, what it says, and its facts."""

    kind: str
    message: str
    facts: dict[str, _PLAIN] = field(default_factory=dict)
    faults: Any = ()


def failure_of(error: errors.StickybusError) -> Failure:
    """An error for the wire."""
    facts: dict[str, Any] = {
        name: fact for name, fact in vars(error).items() if isinstance(fact, _PLAIN)
    }
    faults = error.faults if isinstance(error, DependencyError) else ()
    return Failure(type(error).__name__, str(error), facts, tuple(to_wire(faults)))


def error_of(failure: Failure) -> errors.StickybusError:
    """The error. One whose class is unknown here is a StickybusError."""
    kinds = {kind.__name__: kind for kind in RAISED}
    error = kinds.get(failure.kind, errors.StickybusError)(failure.message)
    vars(error).update(failure.facts)
    if isinstance(error, DependencyError):
        error.faults = from_wire(failure.faults)
    return error

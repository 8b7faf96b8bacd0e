"""Errors on the wire: what a call raised in the service is raised at the client."""

from __future__ import annotations

from dataclasses import dataclass, field

from queue_core import errors
from work_queue.faults import DependencyError, Fault
from work_queue.rights import Need, PermissionDeniedError, UnauthenticatedError

Plain = str | int | float | bool
"""Facts of errors that travel."""
RAISED: tuple[type[errors.StickybusError], ...] = (
    errors.InvalidRequestError,
    errors.InvalidPostError,
    errors.NaiveDateTimeError,
    errors.NameTooLongError,
    errors.PayloadError,
    errors.PayloadNotSerialisableError,
    errors.PayloadTooLargeError,
    errors.PayloadNotDecodableError,
    errors.ConfigurationError,
    errors.DatabaseUnreachableError,
    errors.CommitUnknownError,
    DependencyError,
    UnauthenticatedError,
    PermissionDeniedError,
)
"""What calls raise on purpose."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error: the name of its class, what it says, and its facts."""

    kind: str
    message: str
    facts: dict[str, Plain] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    needs: tuple[Need, ...] = ()


def failure_of(error: errors.StickybusError) -> Failure:
    """An error for the wire."""
    return Failure(
        type(error).__name__,
        str(error),
        {name: fact for name, fact in vars(error).items() if isinstance(fact, Plain)},
        error.faults if isinstance(error, DependencyError) else (),
        error.needs if isinstance(error, PermissionDeniedError) else (),
    )


def error_of(failure: Failure) -> errors.StickybusError:
    """The error. One whose class is unknown here is a StickybusError."""
    kinds = {kind.__name__: kind for kind in RAISED}
    error = kinds.get(failure.kind, errors.StickybusError)(failure.message)
    vars(error).update(failure.facts)
    if isinstance(error, DependencyError):
        error.faults = failure.faults
    if isinstance(error, PermissionDeniedError):
        error.needs = failure.needs
    return error

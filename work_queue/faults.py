"""Why a modification or a claim of docs was refused: all of its faults at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from queue_core.errors import StickybusError
from work_queue.refs import DocRef, Ref, SetRef, TaskRef

SHOWN = 5
"""Faults that a message names; the error has them all."""


class FaultKind(StrEnum):
    """What could not be done."""

    INSERT = "INSERT"
    """The id, or a doc's place in its set, is taken."""
    CHANGE = "CHANGE"
    """A change or lease change names a version that is not there."""
    DELETE = "DELETE"
    """A delete names a version that is not there."""
    DEPEND = "DEPEND"
    """A dependency names a version that is not there."""
    CLAIM = "CLAIM"
    """The version is right, but another claimant holds it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that could not be done.

    Attributes:
        kind: What it was.
        ref: The task, doc or doc set. The version is the one that the call named; after an INSERT
            it is that of what is there, and so it is of a doc set.
    """

    kind: FaultKind
    ref: Ref


class DependencyError(StickybusError):
    """Something that a call names is not as the call says. Nothing was written.

    `faults` holds all of it, in the order of the call.
    """

    faults: tuple[Fault, ...] = ()

    def __init__(self, message: str, faults: Iterable[Fault] = ()) -> None:
        super().__init__(message, faults=tuple(faults))

    def of(self, *kinds: FaultKind) -> tuple[Ref, ...]:
        """Name the parts at fault.

        Args:
            kinds: The kinds of faults.

        Returns:
            The tasks, docs and doc sets with a fault of these kinds.
        """
        return tuple(fault.ref for fault in self.faults if fault.kind in kinds)


def refusal(what: str, faults: Iterable[Fault]) -> DependencyError:
    """The error for these faults of a call, `what`."""
    found = tuple(faults)
    told = [f"{fault.kind.value} {_told(fault.ref)}" for fault in found[:SHOWN]]
    more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return DependencyError(
        f"{what} was refused: {', '.join(told)}{more}. Nothing was written. Read the present "
        "versions (DELETE, CHANGE, DEPEND: another version, or none; CLAIM: another claimant holds "
        "it; INSERT: it exists).",
        found,
    )


def _told(ref: Ref) -> str:
    match ref:
        case TaskRef(id=id_, version=version, queue=queue):
            return f"task {id_!r} at version {version}" + (f" in {queue!r}" if queue else "")
        case DocRef(namespace=namespace, id=id_, version=version):
            return f"doc {id_!r} of {namespace!r} at version {version}"
        case SetRef(namespace=namespace, key=key, version=version):
            return f"doc set {key!r} of {namespace!r} at version {version}"

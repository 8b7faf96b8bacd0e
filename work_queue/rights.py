"""The rights that callers of a service need, and the errors of those who have none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from queue_core.errors import StickybusError

OWN = "#"
"""What follows a caller's name in the names of its claimants."""
SHOWN = 5
"""Needs that a message names; the error has them all."""


class Right(StrEnum):
    """What a caller may do with a queue, a namespace of docs, or a claimant's name."""

    CLAIM = "CLAIM"
    """Claim tasks, or doc sets."""
    DELETE = "DELETE"
    CHANGE = "CHANGE"
    """Change or renew tasks, docs and sets; a move needs INSERT in the new queue, too."""
    DEPEND = "DEPEND"
    """Depend on a version."""
    INSERT = "INSERT"
    READ = "READ"
    """Read or count."""
    ACT = "ACT"
    """Claim and modify under a claimant's name."""


class Kind(StrEnum):
    """What a right is about."""

    QUEUE = "queue"
    NAMESPACE = "namespace"
    CLAIMANT = "claimant"


@dataclass(frozen=True, slots=True)
class Need:
    """One right that a call needs.

    Attributes:
        right: The right.
        kind: What it is about.
        name: Its name; or the beginning of all names that the call is about.
        prefix: Whether it is such a beginning. An empty one: all names.
    """

    right: Right
    kind: Kind
    name: str
    prefix: bool = False

    def __str__(self) -> str:
        if self.right is Right.ACT:
            return f"to act as claimant {self.name!r}"
        return f"{self.right} of {self.kind}{' prefix' * self.prefix} {self.name!r}"


class UnauthenticatedError(StickybusError):
    """The service does not know who calls. Nothing was read or written."""


class PermissionDeniedError(StickybusError):
    """The error of a caller who lacks rights. Nothing was read or written.

    `needs` holds all rights that it lacks.
    """

    needs: tuple[Need, ...] = ()

    def __init__(self, message: str, needs: Iterable[Need] = ()) -> None:
        super().__init__(message, needs=tuple(needs))


def denial(
    who: str, missing: Iterable[Need], *, acts_as: str | None = None
) -> PermissionDeniedError:
    """The error of a caller without these rights; `acts_as`: as which claimant it may act."""
    found = tuple(missing)
    cure = "Ask the keeper of the service's policy."
    if acts_as is not None and any(need.right is Right.ACT for need in found):
        cure = (
            f"Pass claimant={acts_as!r}, or one that begins with {acts_as + OWN!r}. For all else "
            "ask the keeper of the service's policy."
        )
    told = ", ".join(str(need) for need in found[:SHOWN])
    more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return PermissionDeniedError(
        f"{who} lacks rights: {told}{more}. Nothing was read or written. {cure}",
        found,
    )

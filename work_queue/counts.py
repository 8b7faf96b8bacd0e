"""The counts of a queue, and of a namespace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkStats:
    """The tasks of one queue.

    Attributes:
        queue: The queue.
        tasks: All of them.
        claimed: Those under a lease.
        available: Those that can be claimed.
        future: Those whose arrival is still to come, and which nobody has claimed yet.
        max_claims: The highest `Task.claims` of those that are there.
    """

    queue: str
    tasks: int
    claimed: int
    available: int
    future: int
    max_claims: int


@dataclass(frozen=True, slots=True)
class NamespaceStats:
    """The docs of one namespace.

    Attributes:
        namespace: The namespace.
        docs: All of them.
        claimed: Those whose set is held.
    """

    namespace: str
    docs: int
    claimed: int

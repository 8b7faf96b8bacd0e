"""Docs: what tasks share and nobody consumes; and sets of them, which are held together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from work_queue.modification import ChangeDoc, DeleteDoc, DependDoc, DependSet, RenewSet
from work_queue.refs import DocRef, SetRef


@dataclass(frozen=True, slots=True)
class DocClaim:
    """A wish for the doc set of a key, for `WorkQueue.claim_docs`.

    Attributes:
        namespace: The namespace.
        key: The key. A set without docs can be claimed, too.
        omit_docs: Whether the set comes without its docs. Default: False.
    """

    namespace: str
    key: str
    omit_docs: bool = False


@dataclass(frozen=True, slots=True)
class Doc:
    """A doc as it was read or written.

    Version, claimant and arrival are those of its set: all docs with one namespace and key.

    Attributes:
        namespace: Its namespace.
        id: Its id, unique in the namespace.
        version: Raised by each claim and each modification of the set.
        claimant: Who holds the set, or held it last; empty if it was released.
        at: Until when the set is held. In UTC.
        key: The key of its set.
        secondary_key: Its key inside the set, unique there.
        content: A JSON value, or bytes. `UNREAD` if it was read without contents, or
            if somebody has spoilt it by SQL of their own.
        created: When it was inserted, by the database's clock.
        modified: When it was inserted or changed last.
    """

    namespace: str
    id: str
    version: int
    claimant: str
    at: datetime
    key: str
    secondary_key: str
    content: Any
    created: datetime
    modified: datetime

    @property
    def ref(self) -> DocRef:
        """The name of this version."""
        return DocRef(self.namespace, self.id, self.version)

    def change(self, content: object, *, delay: float = 0.0) -> ChangeDoc:
        """Make a change of this version for `WorkQueue.modify`.

        Args:
            content: The new content.
            delay: Seconds for which the set is held from now on. Default: it is released.

        Returns:
            The change.
        """
        return ChangeDoc(self.ref, content, delay=delay)

    def delete(self) -> DeleteDoc:
        """Make a delete of this version for `WorkQueue.modify`.

        Returns:
            The delete.
        """
        return DeleteDoc(self.ref)

    def depend(self) -> DependDoc:
        """Make a dependency for `WorkQueue.modify`: this version must still be the newest.

        Returns:
            The dependency.
        """
        return DependDoc(self.ref)


@dataclass(frozen=True, slots=True)
class DocSet:
    """A doc set as it was claimed or written.

    Attributes:
        namespace: Its namespace.
        key: Its key.
        version: Its version.
        claimant: Who holds it; empty if it was released.
        at: Until when it is held. In UTC.
        docs: Its docs by secondary key. Empty if there are none, or if they were not asked for.
    """

    namespace: str
    key: str
    version: int
    claimant: str
    at: datetime
    docs: tuple[Doc, ...] = ()

    @property
    def ref(self) -> SetRef:
        """The name of this version."""
        return SetRef(self.namespace, self.key, self.version)

    def depend(self) -> DependSet:
        """Make a dependency for `WorkQueue.modify`: this version must still be the newest.

        Returns:
            The dependency.
        """
        return DependSet(self.ref)

    def renew(self, seconds: float) -> RenewSet:
        """Make a lease change for `WorkQueue.modify`: only the arrival moves.

        Args:
            seconds: The new lease from now; 0 or less: the set is released.

        Returns:
            The lease change.
        """
        return RenewSet(self.ref, seconds)

    def release(self) -> RenewSet:
        """Make a lease change that gives the set back.

        Returns:
            The lease change.
        """
        return self.renew(0)

"""Claims of tasks and docs."""

from __future__ import annotations

from work_queue import checks
from work_queue.document import DocClaim, DocSet
from work_queue.face.part import Part
from work_queue.refs import TaskRef
from work_queue.requests import ClaimRequest, DocClaimRequest
from work_queue.task import Task


class Claiming(Part):
    """See `WorkQueue`."""

    def claim(
        self,
        *queues: str,
        lease_seconds: float | None = None,
        timeout_seconds: float | None = None,
        claimant: str | None = None,
    ) -> Task:
        """Claim a task, and wait until there is one.

        It is the first that arrived of a queue, which is drawn at random from those that have an
        available task.

        Args:
            queues: Their names, at least one.
            lease_seconds: How long others leave it alone. Default or 0: the work queue's.
            timeout_seconds: The longest wait, 0 or more. Default: for ever.
            claimant: Who claims. Default: the work queue's.

        Returns:
            The task, whose `at` is the end of the lease.

        Raises:
            TimeoutError: The time has passed.
            InvalidRequestError: An argument is not allowed.
            LifecycleError: The work queue was closed.
            DatabaseUnreachableError: The database does not answer.
        """
        request = self._request(queues, lease_seconds, claimant)
        return _one(self._backend.claim(request, checks.wait(timeout_seconds)), timeout_seconds)

    def try_claim(
        self,
        *queues: str,
        lease_seconds: float | None = None,
        claimant: str | None = None,
    ) -> Task | None:
        """Claim a task if there is one now.

        Args:
            queues: As for `claim`.
            lease_seconds: As for `claim`.
            claimant: As for `claim`.

        Returns:
            The task, or None.

        Raises:
            InvalidRequestError: An argument is not allowed.
            DatabaseUnreachableError: The database does not answer.
        """
        found = self._backend.try_claim(self._request(queues, lease_seconds, claimant))
        return found[0] if found else None

    def claim_many(
        self,
        *queues: str,
        limit: int,
        lease_seconds: float | None = None,
        timeout_seconds: float | None = None,
        claimant: str | None = None,
    ) -> list[Task]:
        """Claim several tasks of one queue at once, and wait until there is one.

        Args:
            queues: As for `claim`.
            limit: How many at most, 1 or more.
            lease_seconds: As for `claim`.
            timeout_seconds: The longest wait for the first one; 0: none. Default: for ever.
            claimant: As for `claim`.

        Returns:
            The tasks, in the order of their arrival; an empty list if the time has passed.

        Raises:
            InvalidRequestError: An argument is not allowed.
            LifecycleError: The work queue was closed.
            DatabaseUnreachableError: The database does not answer.
        """
        request = self._request(queues, lease_seconds, claimant, checks.limit(limit))
        return self._backend.claim(request, checks.wait(timeout_seconds))

    def claim_docs(
        self,
        *claims: DocClaim,
        lease_seconds: float | None = None,
        until: TaskRef | None = None,
        claimant: str | None = None,
    ) -> list[DocSet]:
        """Claim doc sets: all of them, or none.

        Args:
            claims: Which sets, each once.
            lease_seconds: As for `claim`; not together with `until`.
            until: A claimed task: the sets are held as long as it is. Sets that an open transaction
                locks for longer than a second count as held then.
            claimant: As for `claim`.

        Returns:
            The sets, in this order.

        Raises:
            DependencyError: Another claimant holds a set, or the task is not there, or not held.
            InvalidRequestError: An argument is not allowed.
            DatabaseUnreachableError: The database does not answer.
        """
        return self._backend.claim_docs(
            self._doc_request(claims, lease_seconds, until, claimant),
        )

    def _doc_request(
        self,
        claims: tuple[DocClaim, ...],
        lease_seconds: float | None,
        until: TaskRef | None,
        claimant: str | None,
    ) -> DocClaimRequest:
        return DocClaimRequest(
            checks.claimant(claimant, self._claimant),
            checks.doc_claims(claims),
            checks.lease(lease_seconds, self._lease_seconds),
            checks.until(until, lease_seconds),
        )

    def _request(
        self,
        queues: tuple[str, ...],
        lease_seconds: float | None,
        claimant: str | None,
        limit: int = 1,
    ) -> ClaimRequest:
        return ClaimRequest(
            checks.claimant(claimant, self._claimant),
            checks.queues(queues),
            checks.lease(lease_seconds, self._lease_seconds),
            limit,
        )

    # -- awaitable twins --------------------------------------------------------------------------

    async def claim_async(
        self,
        *queues: str,
        lease_seconds: float | None = None,
        timeout_seconds: float | None = None,
        claimant: str | None = None,
    ) -> Task:
        """Awaitable twin of `claim`. No thread waits; if it is cancelled, nothing stays claimed."""
        request = self._request(queues, lease_seconds, claimant)
        found = await self._backend.claim_async(request, checks.wait(timeout_seconds))
        return _one(found, timeout_seconds)

    async def try_claim_async(
        self,
        *queues: str,
        lease_seconds: float | None = None,
        claimant: str | None = None,
    ) -> Task | None:
        """Awaitable twin of `try_claim`. If it is cancelled, nothing stays claimed."""
        request = self._request(queues, lease_seconds, claimant)
        found = await self._backend.try_claim_async(request)
        return found[0] if found else None

    async def claim_many_async(
        self,
        *queues: str,
        limit: int,
        lease_seconds: float | None = None,
        timeout_seconds: float | None = None,
        claimant: str | None = None,
    ) -> list[Task]:
        """Awaitable twin of `claim_many`, as `claim_async` is of `claim`."""
        request = self._request(queues, lease_seconds, claimant, checks.limit(limit))
        return await self._backend.claim_async(request, checks.wait(timeout_seconds))

    async def claim_docs_async(
        self,
        *claims: DocClaim,
        lease_seconds: float | None = None,
        until: TaskRef | None = None,
        claimant: str | None = None,
    ) -> list[DocSet]:
        """Awaitable twin of `claim_docs`. If it is cancelled, nothing stays claimed."""
        return await self._backend.claim_docs_async(
            self._doc_request(claims, lease_seconds, until, claimant)
        )


def _one(found: list[Task], timeout_seconds: float | None) -> Task:
    if not found:
        raise TimeoutError(f"no task could be claimed within {timeout_seconds} s")
    return found[0]

"""The face of the work queue."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import Self

from sqlalchemy import URL, Engine

from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.runtime.clock import Clock
from work_queue import checks
from work_queue.backend import (
    Backend,
    ClaimRequest,
    DocClaimRequest,
    DocQuery,
    NameQuery,
    TaskQuery,
)
from work_queue.counts import NamespaceStats, WorkStats
from work_queue.database import DatabaseBackend
from work_queue.document import Doc, DocClaim, DocSet
from work_queue.modification import Action, Modified
from work_queue.refs import TaskRef
from work_queue.task import Task

LEASE_SECONDS = 45.0
POLL_SECONDS = 5.0
MAX_VALUE_BYTES = 10_000_000


class WorkQueue:
    """Tasks that consumers claim under a lease, and docs that they share.

    A task is finished by its delete. Whoever names the newest version of a task may change it: work
    may run twice, its result is written once.

    Args:
        database: A URL, as a text or SQLAlchemy's, or an Engine, whose URL and way to connect are
            taken.
        claimant: Who claims and modifies, unless a call says otherwise: one name for each consumer,
            at most 64 bytes. Default: a random one.
        lease_seconds: The lease of a claim that gives none.
        poll_seconds: How often a waiting claim looks at least. Commits, arrivals and ends of leases
            wake it before; but on MySQL and MariaDB nothing tells of other processes' commits,
            which are found by this look. Default: 5, and 0.25 on MySQL and MariaDB.
        max_value_bytes: The longest value of a task or content of a doc, as it is stored.
        clock: The time that decides. Default: the database's.

    Raises:
        ConfigurationError: An argument is not allowed.
        DatabaseUnreachableError: The database does not answer.
        SchemaError: The tables are missing, or don't fit this version.

    Example:
        >>> work = WorkQueue("sqlite:///shop.db")
        >>> work.insert("mail", {"to": "ann@example.com"})
        >>> task = work.claim("mail")
        >>> work.modify(task.delete())
    """

    def __init__(
        self,
        database: str | URL | Engine,
        *,
        claimant: str | None = None,
        lease_seconds: float = LEASE_SECONDS,
        poll_seconds: float | None = None,
        max_value_bytes: int = MAX_VALUE_BYTES,
        clock: Clock | None = None,
    ) -> None:
        self._claimant = checks.claimant(claimant, secrets.token_hex(8))
        self._lease_seconds = checks.lease(lease_seconds, LEASE_SECONDS)
        self._backend: Backend = DatabaseBackend(
            database, poll_seconds=poll_seconds, max_value_bytes=max_value_bytes, clock=clock
        )

    @property
    def claimant(self) -> str:
        """Who claims and modifies, unless a call says otherwise."""
        return self._claimant

    # -- claims -----------------------------------------------------------------------------------

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
            timeout_seconds: The longest wait. Default: for ever.
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
            The tasks, in the order of their arrival. None if the time has passed.

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
            until: A claimed task: the sets are held as long as it is.
            claimant: As for `claim`.

        Returns:
            The sets, in this order.

        Raises:
            DependencyError: Another claimant holds a set, or the task is not there, or not held.
            InvalidRequestError: An argument is not allowed.
            DatabaseUnreachableError: The database does not answer.
        """
        return self._backend.claim_docs(
            DocClaimRequest(
                checks.claimant(claimant, self._claimant),
                checks.doc_claims(claims),
                checks.lease(lease_seconds, self._lease_seconds, until=until),
                until,
            )
        )

    # -- modifications ----------------------------------------------------------------------------

    def modify(
        self,
        *actions: Action,
        claimant: str | None = None,
        connection: CallersConnection | None = None,
    ) -> Modified:
        """Insert, change, delete, and check, in one transaction: all of it, or nothing.

        Each task and doc may stand in one of the actions only.

        Args:
            actions: At least one.
            claimant: Who modifies. What another claimant holds is at fault. Default: the work
                queue's.
            connection: The caller's connection, whose transaction this belongs to. Default: a
                transaction of its own.

        Returns:
            What was written.

        Raises:
            DependencyError: Something is not as the actions say. It names all that is at fault;
                nothing was written, and the transaction is whole.
            InvalidRequestError: The actions can never be done.
            PayloadError: A value can't be stored.
            InvalidConnectionError: The connection can't be used here.
            WriteLockError: SQLite refused the write lock to the caller's transaction.
            DatabaseUnreachableError: The database does not answer.
        """
        return self._backend.modify(
            checks.claimant(claimant, self._claimant), checks.actions(actions), connection
        )

    # -- reads ------------------------------------------------------------------------------------

    def tasks(
        self,
        queue: str | None = None,
        *,
        ids: Iterable[str] | None = None,
        claimant: str | None = None,
        limit: int | None = None,
        with_values: bool = True,
        connection: CallersConnection | None = None,
    ) -> list[Task]:
        """Read tasks.

        Args:
            queue: Of this queue. It or `ids` is needed.
            ids: Those with one of these ids.
            claimant: Those that are available, or that this claimant holds.
            limit: How many at most; 0 or less: no limit. Default: no limit.
            with_values: Whether `Task.value` is read.
            connection: The caller's connection, whose transaction reads. Default: one of our own.

        Returns:
            The tasks: in the order of `ids` if given, else in that of their arrival.

        Raises:
            InvalidRequestError: An argument is not allowed.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.
        """
        return self._backend.tasks(
            checks.task_query(
                TaskQuery(queue, checks.ids(ids), claimant, checks.bound(limit), bool(with_values))
            ),
            connection,
        )

    def docs(
        self,
        namespace: str,
        *,
        ids: Iterable[str] | None = None,
        key: str | None = None,
        first_key: str = "",
        end_key: str = "",
        limit: int | None = None,
        with_contents: bool = True,
        connection: CallersConnection | None = None,
    ) -> list[Doc]:
        """Read docs of a namespace: by ids, of one key, or of a range of keys.

        Args:
            namespace: The namespace.
            ids: Those with one of these ids. It goes before all that follows.
            key: Those of this key's set. It goes before the range.
            first_key: Those of this key and of later ones, in the order of bytes.
            end_key: Those of keys before this one. Default: to the end.
            limit: How many at most; 0 or less: no limit. Default: no limit.
            with_contents: Whether `Doc.content` is read.
            connection: The caller's connection, whose transaction reads. Default: one of our own.

        Returns:
            The docs: in the order of `ids` if given, else in that of key and secondary key.

        Raises:
            InvalidRequestError: An argument is not allowed.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.
        """
        found = checks.ids(ids)
        limited = None if found is not None else checks.bound(limit)
        query = DocQuery(namespace, found, key, first_key, end_key, limited, bool(with_contents))
        return self._backend.docs(checks.doc_query(query), connection)

    def queues(
        self,
        *names: str,
        prefixes: Iterable[str] = (),
        limit: int | None = None,
    ) -> dict[str, int]:
        """Count the tasks of queues. No task is read for it.

        Args:
            names: These queues.
            prefixes: Or those whose name begins with one of these texts. Default: all, if there are
                no names either.
            limit: How many queues at most; 0 or less: no limit. Default: no limit.

        Returns:
            The number of tasks of each queue that has any, by name.

        Raises:
            InvalidRequestError: An argument is not allowed.
            DatabaseUnreachableError: The database does not answer.
        """
        return self._backend.queues(_names(names, prefixes, limit))

    def queue_stats(
        self,
        *names: str,
        prefixes: Iterable[str] = (),
        limit: int | None = None,
    ) -> list[WorkStats]:
        """Count the tasks of queues by what can be done with them.

        It costs the same with any number of tasks.

        Args:
            names: As for `queues`.
            prefixes: As for `queues`.
            limit: As for `queues`.

        Returns:
            One for each queue that has tasks, by name.

        Raises:
            InvalidRequestError: An argument is not allowed.
            DatabaseUnreachableError: The database does not answer.
        """
        return self._backend.queue_stats(_names(names, prefixes, limit))

    def namespace_stats(
        self,
        *names: str,
        prefixes: Iterable[str] = (),
        limit: int | None = None,
    ) -> list[NamespaceStats]:
        """Count the docs of namespaces.

        Args:
            names: These namespaces.
            prefixes: Or those whose name begins with one of these texts. Default: all, if there are
                no names either.
            limit: How many namespaces at most; 0 or less: no limit. Default: no limit.

        Returns:
            One for each namespace that has docs, by name.

        Raises:
            InvalidRequestError: An argument is not allowed.
            DatabaseUnreachableError: The database does not answer.
        """
        return self._backend.namespace_stats(_names(names, prefixes, limit))

    def time(self) -> datetime:
        """Read the clock that decides about arrivals and leases.

        Returns:
            An aware date in UTC.

        Raises:
            DatabaseUnreachableError: The database does not answer.
        """
        return self._backend.time()

    # -- life -------------------------------------------------------------------------------------

    def close(self) -> None:
        """End claims that wait, and close the library's connections."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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
        """Awaitable twin of `claim_docs`."""
        return await asyncio.to_thread(
            self.claim_docs, *claims, lease_seconds=lease_seconds, until=until, claimant=claimant
        )

    async def modify_async(
        self,
        *actions: Action,
        claimant: str | None = None,
        connection: AsyncCallersConnection | None = None,
    ) -> Modified:
        """Awaitable twin of `modify`."""
        return await awaited(
            lambda inner: self.modify(*actions, claimant=claimant, connection=inner), connection
        )

    async def tasks_async(
        self,
        queue: str | None = None,
        *,
        ids: Iterable[str] | None = None,
        claimant: str | None = None,
        limit: int | None = None,
        with_values: bool = True,
        connection: AsyncCallersConnection | None = None,
    ) -> list[Task]:
        """Awaitable twin of `tasks`."""
        return await awaited(
            lambda inner: self.tasks(
                queue,
                ids=ids,
                claimant=claimant,
                limit=limit,
                with_values=with_values,
                connection=inner,
            ),
            connection,
        )

    async def docs_async(
        self,
        namespace: str,
        *,
        ids: Iterable[str] | None = None,
        key: str | None = None,
        first_key: str = "",
        end_key: str = "",
        limit: int | None = None,
        with_contents: bool = True,
        connection: AsyncCallersConnection | None = None,
    ) -> list[Doc]:
        """Awaitable twin of `docs`."""
        return await awaited(
            lambda inner: self.docs(
                namespace,
                ids=ids,
                key=key,
                first_key=first_key,
                end_key=end_key,
                limit=limit,
                with_contents=with_contents,
                connection=inner,
            ),
            connection,
        )

    async def queues_async(
        self, *names: str, prefixes: Iterable[str] = (), limit: int | None = None
    ) -> dict[str, int]:
        """Awaitable twin of `queues`."""
        return await asyncio.to_thread(self.queues, *names, prefixes=prefixes, limit=limit)

    async def queue_stats_async(
        self, *names: str, prefixes: Iterable[str] = (), limit: int | None = None
    ) -> list[WorkStats]:
        """Awaitable twin of `queue_stats`."""
        return await asyncio.to_thread(self.queue_stats, *names, prefixes=prefixes, limit=limit)

    async def namespace_stats_async(
        self, *names: str, prefixes: Iterable[str] = (), limit: int | None = None
    ) -> list[NamespaceStats]:
        """Awaitable twin of `namespace_stats`."""
        return await asyncio.to_thread(self.namespace_stats, *names, prefixes=prefixes, limit=limit)

    async def time_async(self) -> datetime:
        """Awaitable twin of `time`."""
        return await asyncio.to_thread(self.time)

    async def close_async(self) -> None:
        """Awaitable twin of `close`."""
        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close_async()


def _names(names: Iterable[str], prefixes: Iterable[str], limit: int | None) -> NameQuery:
    return NameQuery(
        checks.texts(prefixes, key="prefixes"),
        checks.texts(names, key="names"),
        checks.bound(limit),
    )


def _one(found: list[Task], timeout_seconds: float | None) -> Task:
    if not found:
        raise TimeoutError(f"no task could be claimed within {timeout_seconds} s")
    return found[0]

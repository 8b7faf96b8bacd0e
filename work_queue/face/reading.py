"""Reads of tasks, docs and numbers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.runtime.own_threads import in_own_thread
from work_queue import checks
from work_queue.counts import NamespaceStats, WorkStats
from work_queue.document import Doc
from work_queue.face.part import Part
from work_queue.refs import TaskPlace
from work_queue.requests import DocQuery, NameQuery, TaskQuery
from work_queue.task import Task


class Reading(Part):
    """See `WorkQueue`."""

    def tasks(
        self,
        queue: str | None = None,
        *,
        ids: Iterable[str] | None = None,
        claimant: str | None = None,
        limit: int | None = None,
        with_values: bool = True,
        after: TaskPlace | None = None,
        connection: CallersConnection | None = None,
    ) -> list[Task]:
        """Read tasks.

        Args:
            queue: Of this queue. It or `ids` is needed.
            ids: Those with one of these ids.
            claimant: Those that are available, or that this claimant holds.
            limit: How many at most; 0 or less: no limit. Default: no limit.
            with_values: Whether `Task.value` is read. Default: True.
            after: Those of the queue after this place, such as the `place` of the last task of the
                page before. It can't be given together with `ids`.
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
                TaskQuery(
                    queue, checks.ids(ids), claimant, checks.bound(limit), bool(with_values), after
                )
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
            with_contents: Whether `Doc.content` is read. Default: True.
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
        """Count the tasks of queues by state.

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

    # -- awaitable twins --------------------------------------------------------------------------

    async def tasks_async(
        self,
        queue: str | None = None,
        *,
        ids: Iterable[str] | None = None,
        claimant: str | None = None,
        limit: int | None = None,
        with_values: bool = True,
        after: TaskPlace | None = None,
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
                after=after,
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
        return await in_own_thread(self.queues, *names, prefixes=prefixes, limit=limit)

    async def queue_stats_async(
        self, *names: str, prefixes: Iterable[str] = (), limit: int | None = None
    ) -> list[WorkStats]:
        """Awaitable twin of `queue_stats`."""
        return await in_own_thread(self.queue_stats, *names, prefixes=prefixes, limit=limit)

    async def namespace_stats_async(
        self, *names: str, prefixes: Iterable[str] = (), limit: int | None = None
    ) -> list[NamespaceStats]:
        """Awaitable twin of `namespace_stats`."""
        return await in_own_thread(self.namespace_stats, *names, prefixes=prefixes, limit=limit)

    async def time_async(self) -> datetime:
        """Awaitable twin of `time`."""
        return await in_own_thread(self.time)


def _names(names: Iterable[str], prefixes: Iterable[str], limit: int | None) -> NameQuery:
    return NameQuery(
        checks.texts(prefixes, key="prefixes"),
        checks.texts(names, key="names"),
        checks.bound(limit),
    )

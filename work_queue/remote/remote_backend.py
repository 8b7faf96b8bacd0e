"""The work queue at a service's address, put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from queue_core.errors import InvalidConnectionError
from work_queue.counts import NamespaceStats, WorkStats
from work_queue.document import Doc, DocSet
from work_queue.finished_task import FinishedTask, KeptHistory
from work_queue.limit import QueueLimit
from work_queue.modification import Action
from work_queue.modified import Modified
from work_queue.remote.address import Address
from work_queue.remote.line import Line
from work_queue.remote.remote_claims import RemoteClaims
from work_queue.remote.transport import BlockingTransport, Transport
from work_queue.requests import (
    DocClaimRequest,
    DocQuery,
    HistoryDeletion,
    HistoryQuery,
    HistorySetting,
    LimitSetting,
    NameQuery,
    ScheduleSetting,
    TaskQuery,
)
from work_queue.schedule import TaskSchedule
from work_queue.task import Task
from work_queue.wire import calls as wire


class RemoteBackend:
    """See `Backend`. May be used by any threads and event loops, and after a fork."""

    takes_connections = False

    def __init__(
        self,
        address: Address,
        connect: Callable[[Address], Transport],
        connect_blocking: Callable[[Address], BlockingTransport],
        *,
        max_value_bytes: int,
    ) -> None:
        self.address = address
        line = self._line = Line(address, connect, connect_blocking, max_value_bytes)
        claims = self._claims = RemoteClaims(line)
        self.try_claim = claims.try_claim
        self.claim = claims.claim
        self.try_claim_async = claims.try_claim_async
        self.claim_async = claims.claim_async
        self.claim_docs_async = claims.claim_docs_async
        try:
            self.time()
        except BaseException:
            self.close()
            raise

    def claim_docs(self, request: DocClaimRequest) -> list[DocSet]:
        """See `Backend.claim_docs`."""
        return self._line.call(wire.CLAIM_DOCS, request)

    def modify(self, claimant: str, actions: Sequence[Action], connection: Any) -> Modified:
        """See `Backend.modify`."""
        _no(connection)
        return self._line.call(wire.MODIFY, wire.Modify(claimant, tuple(actions)))

    def tasks(self, query: TaskQuery, connection: Any) -> list[Task]:
        """See `Backend.tasks`."""
        _no(connection)
        return self._line.call(wire.TASKS, query)

    def docs(self, query: DocQuery, connection: Any) -> list[Doc]:
        """See `Backend.docs`."""
        _no(connection)
        return self._line.call(wire.DOCS, query)

    def queues(self, query: NameQuery) -> dict[str, int]:
        """See `Backend.queues`."""
        return {stats.queue: stats.tasks for stats in self.queue_stats(query)}

    def queue_stats(self, query: NameQuery) -> list[WorkStats]:
        """See `Backend.queue_stats`."""
        return self._line.call(wire.QUEUE_STATS, query)

    def namespace_stats(self, query: NameQuery) -> list[NamespaceStats]:
        """See `Backend.namespace_stats`."""
        return self._line.call(wire.NAMESPACE_STATS, query)

    def set_history(self, setting: HistorySetting, connection: Any) -> None:
        """See `Backend.set_history`."""
        _no(connection)
        self._line.call(wire.SET_HISTORY, setting)

    def histories(self) -> list[KeptHistory]:
        """See `Backend.histories`."""
        return self._line.call(wire.HISTORIES, wire.Histories())

    def finished_tasks(self, query: HistoryQuery, connection: Any) -> list[FinishedTask]:
        """See `Backend.finished_tasks`."""
        _no(connection)
        return self._line.call(wire.FINISHED_TASKS, query)

    def delete_history(self, deletion: HistoryDeletion) -> int:
        """See `Backend.delete_history`."""
        return self._line.call(wire.DELETE_HISTORY, deletion)

    def set_limit(self, setting: LimitSetting) -> QueueLimit:
        """See `Backend.set_limit`."""
        return self._line.call(wire.SET_LIMIT, setting)

    def remove_limit(self, queue: str) -> bool:
        """See `Backend.remove_limit`."""
        return self._line.call(wire.REMOVE_LIMIT, wire.RemoveLimit(queue))

    def limits(self, queues: tuple[str, ...]) -> list[QueueLimit]:
        """See `Backend.limits`."""
        return self._line.call(wire.LIMITS, wire.Limits(queues))

    def set_schedule(self, setting: ScheduleSetting) -> TaskSchedule:
        """See `Backend.set_schedule`."""
        return self._line.call(wire.SET_SCHEDULE, setting)

    def remove_schedule(self, queue: str, name: str) -> bool:
        """See `Backend.remove_schedule`."""
        return self._line.call(wire.REMOVE_SCHEDULE, wire.RemoveSchedule(queue, name))

    def schedules(self, queues: tuple[str, ...]) -> list[TaskSchedule]:
        """See `Backend.schedules`."""
        return self._line.call(wire.SCHEDULES, wire.Schedules(queues))

    def time(self) -> datetime:
        """See `Backend.time`."""
        return self._line.call(wire.TIME, wire.Time())

    def close(self) -> None:
        """See `Backend.close`. In a child process of a fork only its memory is let go."""
        self._line.close(self._claims.running, self._claims.leave)


def _no(connection: Any) -> None:
    if connection is not None:
        raise InvalidConnectionError(
            "a work queue at a service's address takes no connection=: the service has its own "
            "transactions. Nothing was written. Open the database itself, or leave connection= out."
        )

"""Calls about what is set for queues: what history keeps of them, limits and schedules."""

from __future__ import annotations

from collections.abc import Sequence

from work_queue.finished_task import KeptHistory
from work_queue.limit import QueueLimit
from work_queue.requests import HistorySetting, LimitSetting, NameQuery, ScheduleSetting
from work_queue.rights import Kind, Need, Right
from work_queue.schedule import TaskSchedule
from work_queue.service import needs
from work_queue.service.authoriser import Authoriser
from work_queue.service.caller import Caller
from work_queue.service.metrics import Metrics
from work_queue.work_queue import WorkQueue


class SettingCalls:
    """See `Calls`."""

    def __init__(self, work: WorkQueue, authoriser: Authoriser | None, metrics: Metrics) -> None:
        self._work = work
        self._authoriser = authoriser
        self.metrics = metrics

    async def set_history(self, caller: Caller, setting: HistorySetting) -> bool:
        """Let a queue keep history, or no more."""
        with self.metrics.call("set_history"):
            await self._allow(caller, needs.of_queue(Right.CHANGE, setting.queue))
            await self._work.keep_history_async(setting.queue, keep=setting.keep)
            return setting.keep

    async def histories(self, caller: Caller) -> list[KeptHistory]:
        """Read which queues keep history."""
        with self.metrics.call("histories"):
            await self._allow(caller, needs.of_names(Kind.QUEUE, NameQuery()))
            kept = await self._work.histories_async()
            return [KeptHistory(queue, since) for queue, since in kept.items()]

    async def set_limit(self, caller: Caller, setting: LimitSetting) -> QueueLimit:
        """Limit a queue, or replace its limit. It is by the caller, if its name is known."""
        with self.metrics.call("set_limit"):
            name = await self._allow(caller, needs.of_queue(Right.CHANGE, setting.queue))
            return await self._work.limit_async(
                setting.queue,
                concurrency=setting.concurrency,
                rate=setting.rate,
                per=setting.per,
                burst=setting.burst,
                by=name or setting.by,
            )

    async def remove_limit(self, caller: Caller, queue: str) -> bool:
        """End the limit of a queue."""
        with self.metrics.call("remove_limit"):
            await self._allow(caller, needs.of_queue(Right.CHANGE, queue))
            return await self._work.unlimit_async(queue)

    async def limits(self, caller: Caller, queues: Sequence[str]) -> list[QueueLimit]:
        """Read the limits of these queues, or of all if there are none."""
        with self.metrics.call("limits"):
            await self._allow(caller, needs.of_names(Kind.QUEUE, NameQuery(names=tuple(queues))))
            return await self._work.limits_async(*queues)

    async def set_schedule(self, caller: Caller, setting: ScheduleSetting) -> TaskSchedule:
        """Declare a recurring schedule, or replace it."""
        with self.metrics.call("set_schedule"):
            await self._allow(caller, needs.of_schedule(setting.queue))
            return await self._work.recur_async(
                setting.queue,
                setting.name,
                setting.value,
                cron=setting.cron,
                every=setting.every,
                timezone=setting.timezone,
                missed=setting.missed,
            )

    async def remove_schedule(self, caller: Caller, queue: str, name: str) -> bool:
        """End a recurring schedule."""
        with self.metrics.call("remove_schedule"):
            await self._allow(caller, needs.of_queue(Right.CHANGE, queue))
            return await self._work.stop_recurring_async(queue, name)

    async def schedules(self, caller: Caller, queues: Sequence[str]) -> list[TaskSchedule]:
        """Read the recurring schedules of these queues, or of all if there are none."""
        with self.metrics.call("schedules"):
            await self._allow(caller, needs.of_names(Kind.QUEUE, NameQuery(names=tuple(queues))))
            return await self._work.recurring_async(*queues)

    async def _allow(self, caller: Caller, wanted: Sequence[Need]) -> str | None:
        """The caller's name, if the authoriser knows it. Raises what `Authoriser.allow` raises."""
        if self._authoriser is None:
            return None
        return await self._authoriser.allow(caller, wanted)

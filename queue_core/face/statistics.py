"""The statistics of a bus or service."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TypedDict, Unpack

from queue_core.face.part import FacePart
from queue_core.reading.statistics import (
    SECOND,
    ProcessingTimeStats,
    QueueStats,
    RetryStats,
    StatsFilter,
    processing_time_stats,
    queue_stats,
    retry_stats,
)


class StatsOptions(TypedDict, total=False):
    """The entries that statistics count."""

    queue_name: str | None
    age: timedelta | None
    now: datetime | None


class FaceStatistics(FacePart):
    """Figures of the queues of its table over a time."""

    def queue_stats(self, **options: Unpack[StatsOptions]) -> list[QueueStats]:
        """As `Inspector.queue_stats`, of the queues of its table."""
        return queue_stats(self._engine.store, StatsFilter(**options))

    def retry_stats(self, **options: Unpack[StatsOptions]) -> list[RetryStats]:
        """As `Inspector.retry_stats`, of the queues of its table."""
        return retry_stats(self._engine.store, StatsFilter(**options))

    def processing_time_stats(
        self, *, unit: timedelta = SECOND, **options: Unpack[StatsOptions]
    ) -> list[ProcessingTimeStats]:
        """As `Inspector.processing_time_stats`, of the queues of its table."""
        return processing_time_stats(self._engine.store, StatsFilter(**options), unit)

    async def queue_stats_async(self, **options: Unpack[StatsOptions]) -> list[QueueStats]:
        """Awaitable twin of `queue_stats`, in a thread."""
        return await asyncio.to_thread(lambda: self.queue_stats(**options))

    async def retry_stats_async(self, **options: Unpack[StatsOptions]) -> list[RetryStats]:
        """Awaitable twin of `retry_stats`, in a thread."""
        return await asyncio.to_thread(lambda: self.retry_stats(**options))

    async def processing_time_stats_async(
        self, *, unit: timedelta = SECOND, **options: Unpack[StatsOptions]
    ) -> list[ProcessingTimeStats]:
        """Awaitable twin of `processing_time_stats`, in a thread."""
        return await asyncio.to_thread(lambda: self.processing_time_stats(unit=unit, **options))

"""Progress of a job, for people who wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, entries done so far, entries in all), from any thread."""

_LOOK_SECONDS = 0.25
"""The pause between two looks at how far Spark is."""
_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


def silent(step: str, done: int, total: int) -> None:
    """Progress that nobody wants to see."""


@contextmanager
def watched(spark: SparkSession, stages: int, tell: Callable[[float], None]) -> Iterator[None]:
    """Tell, several times a second, the share of work done by the Spark jobs that start inside.

    `stages` is the number of stages that the jobs have in all: Spark does not tell which are still
    to come.
    """
    context, group = spark.sparkContext, f"stickybus-{uuid4().hex}"
    tracker, ended = context.statusTracker(), threading.Event()

    def share() -> float:
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        numbers = {stage for job in jobs if job is not None for stage in job.stageIds}
        found = [tracker.getStageInfo(number) for number in numbers]
        done = sum(
            stage.numCompletedTasks / max(1, stage.numTasks) for stage in found if stage is not None
        )
        return min(1.0, done / stages)

    def look() -> None:
        furthest = 0.0
        while not ended.wait(_LOOK_SECONDS):
            furthest = max(furthest, share())
            tell(furthest)

    former = {key: context.getLocalProperty(key) for key in _GROUP}
    watcher = threading.Thread(target=look, name="stickybus-progress", daemon=True)
    context.setJobGroup(group, "stickybus")
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        for key, value in former.items():
            context.setLocalProperty(key, value)  # type: ignore[arg-type]  # None takes it away

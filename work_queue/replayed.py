"""The answer of a replay."""

from __future__ import annotations

from dataclasses import dataclass

from work_queue.task import Task


@dataclass(frozen=True, slots=True)
class Replayed:
    """How far a replay of failed tasks has come.

    Attributes:
        matched: Tasks that matched when the call began.
        replayed: Those of them that have begun anew.
        skipped: Those that others held, had changed or deleted when their turn came.
        stopped: Whether it was stopped before its end. Call it again to go on.
        first: In a dry run the first 10 tasks, in the order of their arrival; else empty.
    """

    matched: int
    replayed: int = 0
    skipped: int = 0
    stopped: bool = False
    first: tuple[Task, ...] = ()

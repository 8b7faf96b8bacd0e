"""Actions that name a task without its queue, as old callers do, where rights hang on queues.

The task is looked up, and the action names its queue from then on: if it moves before the action is
done, the action is at fault, and is not done in a queue for which nobody was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from sql.tables import TASK_QUEUE_LENGTH
from work_queue.faults import DependencyError, Fault, refusal
from work_queue.modification import Action, NamesTask
from work_queue.refs import Ref, TaskRef
from work_queue.work_queue import WorkQueue

NOWHERE = "?" * (TASK_QUEUE_LENGTH + 1)
"""Too long for a queue: what is pinned to it can't come to be in between."""


@dataclass(frozen=True)
class Pinned:
    """Actions that name the queues of their tasks.

    Attributes:
        actions: In the order of the call.
        before: What the call named instead, by what is named now.
    """

    actions: tuple[Action, ...]
    before: dict[Ref, TaskRef]

    @property
    def known(self) -> list[Action]:
        """Those whose task is there, or that named its queue themselves."""
        return [
            action
            for action in self.actions
            if not (_names_task(action) and action.task.queue == NOWHERE)
        ]

    def told(self, error: DependencyError) -> DependencyError:
        """The same faults, of what the call named."""
        if not self.before:
            return error
        faults = [
            Fault(fault.kind, self.before.get(fault.ref, fault.ref)) for fault in error.faults
        ]
        return refusal("the modification", faults)


def names_no_queue(actions: Sequence[Action]) -> bool:
    """Whether a queue has to be looked up."""
    return any(_names_task(action) and not action.task.queue for action in actions)


async def pinned(work: WorkQueue, actions: Sequence[Action]) -> Pinned:
    """Look up the queues that actions don't name."""
    named = [action.task for action in actions if _names_task(action) and not action.task.queue]
    if not named:
        return Pinned(tuple(actions), {})
    found = await work.tasks_async(ids=[ref.id for ref in named], with_values=False)
    queues = {task.id: task.queue for task in found}
    pins = {ref: replace(ref, queue=queues.get(ref.id, NOWHERE)) for ref in named}
    return Pinned(
        tuple(
            replace(action, task=pins.get(action.task, action.task))
            if _names_task(action)
            else action
            for action in actions
        ),
        {pin: ref for ref, pin in pins.items()},
    )


def _names_task(action: Action) -> TypeGuard[NamesTask]:
    return isinstance(action, NamesTask)

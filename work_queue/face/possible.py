"""A modification without the actions that can't be done."""

from __future__ import annotations

from collections.abc import Sequence

from work_queue.face.modifying import Modifying
from work_queue.faults import DependencyError
from work_queue.modification import Delete, Replay


def modify_possible(
    work: Modifying, actions: Sequence[Delete | Replay], claimant: str | None
) -> int:
    """Do those that nobody's change prevents, in one transaction; returns how many."""
    while actions:
        try:
            work.modify(*actions, claimant=claimant)
            break
        except DependencyError as error:
            lost = {fault.ref for fault in error.faults}
            actions = [one for one in actions if one.task not in lost]
    return len(actions)

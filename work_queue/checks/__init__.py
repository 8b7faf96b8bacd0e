"""The checks of calls before they reach a database or a wire. Faults are InvalidRequestErrors."""

from work_queue.checks.actions import actions, modifier
from work_queue.checks.arguments import (
    bound,
    claimant,
    doc_claims,
    doc_query,
    ids,
    lease,
    limit,
    queues,
    task_query,
    texts,
    until,
    wait,
)

__all__ = [
    "actions",
    "bound",
    "claimant",
    "doc_claims",
    "doc_query",
    "ids",
    "lease",
    "limit",
    "modifier",
    "queues",
    "task_query",
    "texts",
    "until",
    "wait",
]

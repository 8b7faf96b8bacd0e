"""The checks of calls before they reach a database or a wire. Faults are InvalidRequestErrors."""

from work_queue.checks.actions import actions, modifier
from work_queue.checks.arguments import (
    bound,
    claimant,
    date,
    doc_claims,
    doc_query,
    error_text,
    history_query,
    ids,
    lease,
    limit,
    queue,
    queues,
    task_query,
    texts,
    until,
    wait,
)
from work_queue.checks.limits import limit_setting
from work_queue.checks.schedules import schedule_name, schedule_setting

__all__ = [
    "actions",
    "bound",
    "claimant",
    "date",
    "doc_claims",
    "doc_query",
    "error_text",
    "history_query",
    "ids",
    "lease",
    "limit",
    "limit_setting",
    "modifier",
    "queue",
    "queues",
    "schedule_name",
    "schedule_setting",
    "task_query",
    "texts",
    "until",
    "wait",
]

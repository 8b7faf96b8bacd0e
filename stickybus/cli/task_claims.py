"""Claims of tasks by hand: `claim` and `tryclaimid` of `stickybus tasks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stickybus.cli.option_groups import grouped
from stickybus.cli.target import Json
from stickybus.cli.task_output import HiddenValues, Id, read, refuse, write
from stickybus.cli.work import Lease, Opening, Queue, opening, seconds

if TYPE_CHECKING:
    from work_queue.work_queue import WorkQueue


@grouped(opened=opening)
def claim(
    *,
    queue: Annotated[
        list[str],
        typer.Option("--queue", "-q", help="From this one; may be repeated.", show_default=False),
    ],
    at_once: Annotated[
        bool, typer.Option("--try", help="Don't wait: exit with 1 if there is none.")
    ] = False,
    lease: Lease = "30",
    timeout: Annotated[
        str | None,
        typer.Option(help="The longest wait. Default: for ever.", show_default=False),
    ] = None,
    omit_values: HiddenValues = False,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Claim a task, and show it. Waits until there is one.

    Nobody else can claim it until the lease ends. Give --claimant to change or delete it by then.

    Examples:
      stickybus tasks claim -q mail --claimant ann

      stickybus tasks claim -q mail -q news --try -d 5m
    """
    wait = 0.0 if at_once else None if timeout is None else seconds(timeout)
    with opened() as work:
        found = work.claim_many(*queue, limit=1, lease_seconds=seconds(lease), timeout_seconds=wait)
    if not found:
        refuse(f"no task can be claimed in {', '.join(queue)}")
    write("claimed", found, omit_values=omit_values, as_json=as_json)


@grouped(opened=opening)
def tryclaimid(
    *,
    task: Id,
    queue: Queue = "",
    lease: Lease = "30",
    omit_values: HiddenValues = False,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Hold one certain task for a lease, if it can be claimed now, and show it.

    Nobody else can claim it until the lease ends. But it does not count as claimed: the number of
    its claims stays, and it takes no place of its queue's limit. If that has no place, it can't be
    held.

    Examples:
      stickybus tasks tryclaimid -t 01a2 --claimant ann
    """
    from work_queue import checks
    from work_queue.work_queue import LEASE_SECONDS

    held = checks.lease(seconds(lease), LEASE_SECONDS)
    with opened() as work:
        found = read(work, task, queue)
        if found.at > work.time():
            holder = f"{found.claimant} holds it" if found.claimant else "nobody can claim it"
            refuse(f"{holder} until {found.at.isoformat()}")
        _check_limit(work, found.queue)
        changed = work.modify(found.renew(held)).changed
    write("claimed", changed, omit_values=omit_values, as_json=as_json)


def _check_limit(work: WorkQueue, queue: str) -> None:
    """End the command if as many tasks of the queue are claimed as its limit allows."""
    for limit in work.limits(queue):
        claimed = sum(stats.claimed for stats in work.queue_stats(queue))
        if limit.concurrency is not None and claimed >= limit.concurrency:
            refuse(f"{queue} is limited to {limit.told}, and {claimed:,} are claimed")

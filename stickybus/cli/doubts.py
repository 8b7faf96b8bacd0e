"""A doubt about the name of a queue of which nothing is to be seen."""

from __future__ import annotations

from stickybus.cli.output import remark
from stickybus.cli.target import inspected


def doubt(url: str | None, table: str, queue: str, *, to_undo: str) -> None:
    """Ask on standard error for a queue's name, if it has no entry, and no live node serves it.

    `to_undo`: what to do if the name is wrong.
    """
    if not _is_known(url, table, queue):
        remark(
            f"No entry is in the queue {queue} of {table}, and no live node serves it: is the name "
            f"right? {to_undo}"
        )


def _is_known(url: str | None, table: str, queue: str) -> bool:
    with inspected(url) as inspector:
        if inspector.entries(table=table, queue_name=queue, limit=1):
            return True
        return any(
            queue in served["queues"] and served.get("table", table) == table
            for node in inspector.nodes()
            if node.state == "LIVE"
            for served in node.serves
        )

"""Doubts about the names of a queue and a handler of which nothing is to be seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stickybus.cli.entry_options import DEFAULT_TABLE
from stickybus.cli.output import remark
from stickybus.cli.target import inspected
from stickybus.cli.usage import UsageError

if TYPE_CHECKING:
    from queue_core.inspector import Inspector
    from queue_core.reading.nodes import Served


def refuse_other_table(url: str | None, table: str, queue: str) -> None:
    """Raise a usage error if only other tables have anything of a queue."""
    with inspected(url) as inspector:
        if _is_known(inspector, table, queue):
            return
        others = [
            one for one in inspector.tables() if one != table and _is_known(inspector, one, queue)
        ]
    if others:
        raise UsageError(
            f"{queue} is no queue of {table}, but one of {', '.join(others)}: add --table "
            f"{others[0]}"
        )


def doubt(
    url: str | None, table: str, queue: str, *, handler: str | None = None, to_undo: str
) -> None:
    """Ask on standard error for a queue's name, if it has no entry, and no node ever served it.

    So for a handler's name that no node has among its subscribers. `to_undo`: what to do if the
    name is wrong.
    """
    with inspected(url) as inspector:
        if not _is_known(inspector, table, queue):
            remark(
                f"No entry is in the queue {queue} of {table}, and no node has served it: is the "
                f"name right? {to_undo}"
            )
        known = _handlers(inspector, table, queue)
        if handler is not None and known and handler not in known:
            remark(
                f"No node has a subscriber {handler} of {queue}, but "
                f"{', '.join(sorted(known))}: is the name right? {to_undo}"
            )


def _is_known(inspector: Inspector, table: str, queue: str) -> bool:
    return (
        (table, queue) == (DEFAULT_TABLE, "bus")  # the bus that nobody has named
        or bool(inspector.entries(table=table, queue_name=queue, limit=1))
        or any(True for _ in _serving(inspector, table, queue))
    )


def _serving(inspector: Inspector, table: str, queue: str) -> Iterator[Served]:
    """What each node says of a queue, also of nodes that have stopped."""
    for node in inspector.nodes():
        for served in node.serves:
            if queue in served["queues"] and served.get("table", table) == table:
                yield served


def _handlers(inspector: Inspector, table: str, queue: str) -> set[str] | None:
    """The names of all subscribers of a queue. None if they are not known."""
    found = set[str]()
    for served in _serving(inspector, table, queue):
        for names in served.get("subscribers", {}).values():
            if isinstance(names, str):  # the digest of too many names
                return None
            found.update(names)
    return found

"""The subscribers that each node has of an event type, by its row, and where nodes differ.

Any node of a bus may run an event, with its own subscribers alone: those that only another node has
never see it. A rolling deploy lets nodes differ for a while, so that a difference is told, and
refused nowhere.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row

from queue_core.links.served_tables import members
from queue_core.runtime.log import get_logger
from sql.statements import nodes

log = get_logger(__name__)

LONGEST_LIST = 300
"""Characters of the names of a type's subscribers.

A longer list is published as its length and digest: each beat writes all.
"""
NODES_SHOWN = 3
"""Nodes that a warning names."""


def published(names: Iterable[str]) -> list[str] | str:
    """A set of subscribers' names as it stands in a node's row: the same for the same names."""
    found = sorted(names)
    if sum(map(len, found)) <= LONGEST_LIST:
        return found
    digest = hashlib.sha256(msgspec.json.encode(found)).hexdigest()
    return f"{len(found)} subscribers, sha256 {digest[:32]}"


@dataclass(frozen=True)
class Difference:
    """An event type of which live nodes have different subscribers.

    Attributes:
        table: The main table of its bus.
        queue_name: Its bus.
        class_name: Its event name.
        nodes_of: The names of the nodes that have each set of subscribers, by the set as a text.
        newest_start: When the last of these nodes registered (UTC).
    """

    table: str
    queue_name: str
    class_name: str
    nodes_of: Mapping[str, Sequence[str]]
    newest_start: datetime

    @property
    def key(self) -> tuple[str, str, str]:
        """Its table, queue and type."""
        return self.table, self.queue_name, self.class_name

    def of(self, node_name: str) -> str | None:
        """The set of this node; None if it has no part in the difference."""
        return next(
            (shown for shown, names in self.nodes_of.items() if node_name in names),
            None,
        )

    def described(self, besides: str | None = None) -> str:
        """The sets and their nodes, such as `book, mail (on a, b); nobody (on c)`, without one."""
        return "; ".join(
            f"{shown} (on {_few(names)})"
            for shown, names in self.nodes_of.items()
            if shown != besides
        )


def differences(rows: Iterable[Row[Any]], now: datetime) -> list[Difference]:
    """The differences of live nodes that beat, by their rows, at `now`; by table, queue and type.

    A row without subscribers, as the version before writes it, or of somebody's hand, says nothing.
    """
    found: defaultdict[tuple[str, str, str], defaultdict[str, list[Row[Any]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        if row.state == nodes.LIVE and (now - row.beat_date).total_seconds() <= row.lease_seconds:
            for member in members(row) or []:
                for queue_name in member.queues:
                    for class_name, names in member.subscribers.items():
                        found[member.table, queue_name, class_name][_shown(names)].append(row)
    return [
        Difference(
            *key,
            {shown: [row.name for row in rows] for shown, rows in sets.items()},
            max(row.started_date for rows in sets.values() for row in rows),
        )
        for key, sets in sorted(found.items())
        if len(sets) > 1
    ]


class SubscriberWatch:
    """Warns, once for each event type, that a node joins others with other subscribers."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name
        self._compared: list[object] | None = None
        self._told = set[tuple[str, str, str]]()

    def look(self, rows: Mapping[str, Row[Any]], now: datetime) -> None:
        """Compare if this node's subscribers have changed; a node that joins later looks itself."""
        own = rows.get(self._node_name)
        own_members = (None if own is None else members(own)) or []
        compared: list[object] = [(one.table, one.queues, one.subscribers) for one in own_members]
        if compared == self._compared:
            return
        self._compared = compared
        for difference in differences(rows.values(), now):
            here = difference.of(self._node_name)
            if here is None or difference.key in self._told:
                continue
            self._told.add(difference.key)
            log.warning(
                "subscribers_differ",
                node=self._node_name,
                table=difference.table,
                queue_name=difference.queue_name,
                class_name=difference.class_name,
                here=here,
                elsewhere=difference.described(besides=here),
                note=(
                    "each node runs its share of these events with its own subscribers alone; "
                    "expected during a deploy only"
                ),
            )


def _shown(names: list[str] | str) -> str:
    return names if isinstance(names, str) else ", ".join(names) or "nobody"


def _few(names: Sequence[str]) -> str:
    more = len(names) - NODES_SHOWN
    return ", ".join(names[:NODES_SHOWN]) + (f" and {more} more" if more > 0 else "")

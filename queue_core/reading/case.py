"""An entry that is to be explained, with all that stands in the tables about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from queue_core.errors import PayloadNotDecodableError
from queue_core.model.entry import Entry, SubscriberProgress
from queue_core.model.limit import Limit
from queue_core.model.pause import Pause
from queue_core.reading.nodes import NodeStatus, Served, served_by
from queue_core.reading.open_circuits import OpenCircuit
from queue_core.storage.store import Store


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """An entry, and all else that stands in the tables at this moment."""

    store: Store
    connection: Connection
    entry: Entry
    now: datetime
    pauses: Sequence[Pause]
    """Those of its queue and of its queue's handlers that have not ended."""
    limit: Limit | None
    """That of its queue."""
    circuits: Sequence[OpenCircuit]
    """The open ones of its queue, if it may wait for one."""
    nodes: Sequence[NodeStatus]

    @property
    def progress(self) -> SubscriberProgress:
        """The progress of its subscribers; nothing, if that can't be read."""
        try:
            return self.entry.progress
        except PayloadNotDecodableError:
            return {}

    @property
    def serving(self) -> list[tuple[NodeStatus, Served]]:
        """The live nodes that serve its queue."""
        return [
            (node, served)
            for node in self.nodes
            if is_live(node)
            for served in served_by(node, self.store.config.table)
            if self.entry.queue_name in served["queues"]
        ]

    def node(self, name: str | None) -> NodeStatus | None:
        """The node of this name, if it has a row."""
        return next((node for node in self.nodes if node.name == name), None)


def is_live(node: NodeStatus) -> bool:
    """Whether a node lives and beats, by its row."""
    return node.lease_left_seconds is not None and node.lease_left_seconds >= 0

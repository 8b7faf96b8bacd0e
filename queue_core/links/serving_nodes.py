"""The nodes that serve one main table, as their rows tell."""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.links.served_tables import keeps_all, outliving
from queue_core.model.config import QueueConfig
from queue_core.model.lanes import ANY_NODE, is_node_lane
from queue_core.runtime.clock import Clock
from sql.statements.nodes import LIVE, Nodes

KNOWN_SECONDS = 1.0
"""The time for which a lane's node counts as it was read.

An entry that goes to the lane of a node that is dead by then is reaped, as others there are.
"""


class ServingNodes:
    """Reads the rows of nodes, for one main table."""

    def __init__(self, nodes: Nodes, config: QueueConfig, clock: Clock) -> None:
        self._nodes = nodes
        self._config = config
        self._clock = clock
        self._known = dict[str, tuple[float, bool]]()
        """By lane: when its row was read (monotonic), and whether its node serves the table."""

    def keep_all(self, connection: Connection) -> bool:
        """Whether each entry that has ended is in history, unless somebody has deleted it there.

        False if a node, which may be dead by now, keeps only failures.
        """
        table = self._config.table
        return self._config.history == "all" and all(
            keeps_all(row, table) for row in self._nodes.all_nodes(connection)
        )

    def lane(self, connection: Connection, lane: str) -> str:
        """The lane for an entry that was posted for `lane`: any node's if its node is gone.

        For a transaction of the library.
        """
        if not is_node_lane(lane):
            return lane
        since = self._clock.monotonic() - KNOWN_SECONDS
        read_at, serves = self._known.get(lane, (since, False))
        if read_at <= since:
            serves = self._serves(connection, lane)
            known = {name: found for name, found in list(self._known.items()) if found[0] > since}
            self._known = {**known, lane: (since + KNOWN_SECONDS, serves)}
        return lane if serves else ANY_NODE

    def _serves(self, connection: Connection, name: str) -> bool:
        row = self._nodes.node(connection, name)
        return row is not None and row.state == LIVE and outliving(row, self._config.table) is None

"""The statements on `queue_nodes`.

Each is conditional on the row that its caller has seen: names are won, never assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, case, delete, insert, select, update

from sql.tables import queue_nodes as nodes

LIVE, STOPPED, DEAD, GONE = "LIVE", "STOPPED", "DEAD", "GONE"
"""A node that stopped in order is GONE once its lease has ended. A silent one is DEAD."""
FENCED = frozenset({DEAD, GONE})
"""States in which a node's entries are moved to others."""
IN_ORDER = frozenset({STOPPED, GONE})
"""States of a node whose process took leave: nothing that it left has killed it."""
OUTLIVING = "outliving"
"""A key of a table that a node serves no more, but for these ids, which it still runs."""


class Nodes:
    """Rows of nodes."""

    def all_nodes(self, connection: Connection) -> list[Row[Any]]:
        """The rows of all nodes, by name."""
        return list(connection.execute(select(nodes).order_by(nodes.c.name)))

    def node(self, connection: Connection, name: str, *, lock: bool = False) -> Row[Any] | None:
        """The row of a node; locked, nobody takes the name or declares it dead meanwhile."""
        statement = select(nodes).where(nodes.c.name == name)
        return connection.execute(statement.with_for_update() if lock else statement).one_or_none()

    def enter(self, connection: Connection, values: Mapping[str, Any]) -> None:
        """Insert the row of a name never used before.

        An IntegrityError says that somebody was faster.
        """
        connection.execute(insert(nodes).values(**values))

    def take_over(
        self, connection: Connection, name: str, *, epoch: int, beat: int, values: Mapping[str, Any]
    ) -> bool:
        """Write `values` if the row is as it was seen.

        False if its holder has beaten, or another was faster.
        """
        return self._change(connection, name, epoch=epoch, beat=beat, values=values)

    def beat(
        self,
        connection: Connection,
        name: str,
        *,
        epoch: int,
        beat: int,
        now: datetime,
        serves: str,
    ) -> bool:
        """Renew the lease, and write the node's queues.

        False if it was declared dead, or if its name was taken.
        """
        statement = update(nodes).where(
            nodes.c.name == name, nodes.c.epoch == epoch, nodes.c.state == LIVE
        )
        return (
            connection.execute(statement.values(beat=beat, beat_date=now, serves=serves)).rowcount
            == 1
        )

    def fence(self, connection: Connection, name: str, *, epoch: int, beat: int) -> bool:
        """Declare a node dead, or gone if it had stopped, that has not beaten since it was seen."""
        state = case((nodes.c.state == STOPPED, GONE), else_=DEAD)
        return self._change(connection, name, epoch=epoch, beat=beat, values={"state": state})

    def _change(
        self, connection: Connection, name: str, *, epoch: int, beat: int, values: Mapping[str, Any]
    ) -> bool:
        statement = update(nodes).where(
            nodes.c.name == name, nodes.c.epoch == epoch, nodes.c.beat == beat
        )
        return connection.execute(statement.values(**values)).rowcount == 1

    def leave(self, connection: Connection, name: str, *, epoch: int) -> None:
        """End a lease by its holder's will."""
        statement = update(nodes).where(
            nodes.c.name == name, nodes.c.epoch == epoch, nodes.c.state == LIVE
        )
        connection.execute(statement.values(state=STOPPED))

    def serve(self, connection: Connection, name: str, *, epoch: int, serves: str) -> None:
        """Write the queues that a node serves."""
        connection.execute(
            update(nodes).where(nodes.c.name == name, nodes.c.epoch == epoch).values(serves=serves)
        )

    def forget(self, connection: Connection, name: str, *, epoch: int) -> None:
        """Remove the row of a node that is dead or gone."""
        statement = delete(nodes).where(
            nodes.c.name == name, nodes.c.epoch == epoch, nodes.c.state.in_(FENCED)
        )
        connection.execute(statement)

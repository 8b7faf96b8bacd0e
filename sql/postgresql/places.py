"""PostgreSQL's claims of limited queues, where a limit has places enough: in three messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from sql.drivers.hot_path import Use, cut, use_of
from sql.statements.base import full_name
from sql.statements.claims import Claim, in_claim_order
from sql.statements.entries import Statements
from sql.statements.outcomes import encoded
from sql.statements.places import Seats

if TYPE_CHECKING:
    from psycopg import ClientCursor

_SEAT = """\
SELECT 1 FROM {limits} WHERE table_name = %(table_name)s AND lane = %(lane)s FOR UPDATE;
INSERT INTO {places} (table_name, lane, record_id, claim_count, owner, places, claims)
SELECT %(table_name)s, %(lane)s, %(record_id)s, %(claim_count)s, %(owner)s, %(wanted)s, %(listed)s
FROM {limits} AS terms CROSS JOIN LATERAL (
    SELECT count(*) AS bunches, coalesce(sum(places), 0) AS taken,
        coalesce(sum(places) FILTER (WHERE owner = %(owner)s), 0) AS mine
    FROM {places} WHERE table_name = %(table_name)s AND lane = %(lane)s
) AS counted
WHERE table_name = %(table_name)s AND lane = %(lane)s AND rate IS NULL
AND bunches < %(most_bunches)s
AND (concurrency IS NULL OR %(wanted)s <= least(
    concurrency - taken, greatest(%(threads)s, concurrency / %(nodes)s) - mine
))
AND (per_node IS NULL OR %(wanted)s <= per_node - mine)"""
"""The second statement takes a new snapshot.

It sees rows that others committed before the first one had the lock.
"""


class PostgreSQLPlaces(Statements):
    """Claims entries together with their places."""

    def open_claim(self, connection: Connection, claim: Claim) -> list[Sequence[Any]] | None:
        """See `Places.open_claim`."""
        if not connection.in_transaction():  # by SQLAlchemy's count: to the server it sends nothing
            connection.begin()
        if use_of(connection) is not Use.AUTOCOMMIT:
            return None
        prepared = self._prepared(connection, self._claim)
        given = prepared.bound(claim.parameters())
        cursor = self._together(connection, f"BEGIN; {prepared.text}", given)
        cursor.nextset()
        return in_claim_order(cursor.fetchall())

    def seat(self, connection: Connection, seats: Seats) -> bool:
        """See `Places.seat`."""
        record_id, claim_count = seats.claims[0]
        given = {
            **seats._asdict(),
            "table_name": self.main.name,
            "record_id": record_id,
            "claim_count": claim_count,
            "wanted": len(seats.claims),
            "listed": encoded(seats.claims),
        }
        text = _SEAT.format(
            limits=full_name(connection, self._limits), places=full_name(connection, self._places)
        )
        cursor = self._together(connection, text, given)
        cursor.nextset()  # the INSERT
        return cursor.rowcount == 1

    def close_claim(self, connection: Connection, *, keep: bool) -> None:
        """See `Places.close_claim`."""
        self._together(connection, "COMMIT" if keep else "ROLLBACK", {})

    def _together(
        self, connection: Connection, text: str, given: Mapping[str, Any]
    ) -> ClientCursor[Any]:
        """Send several statements as one message.

        The driver writes the values down: the protocol has bound ones for single statements only.
        """
        from psycopg import ClientCursor

        driver: Any = connection.connection.driver_connection
        try:
            cursor = ClientCursor(driver)
            cursor.execute(text, given)
        except BaseException as error:
            cut(connection, text, error)
            raise
        return cursor

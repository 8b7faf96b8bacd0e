"""The statements on `queue_places`: which claims of a limited queue have places.

Whoever writes here has locked the queue's limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select
from sqlalchemy.util import memoized_property

from sql.statements.base import IN_PROCESSING, batches
from sql.statements.outcomes import Outcomes, encoded
from sql.tables import in_schema, queue_places

_CLAIMS = msgspec.json.Decoder(list[tuple[int, int]])


class Bunch(NamedTuple):
    """The places that one owner has taken at once, as far as is known."""

    owner: str
    places: int


class Places(Outcomes):
    """Places that claims of the main table's entries have taken."""

    @memoized_property
    def _places(self) -> Table:
        return in_schema(queue_places, self.main.schema)

    def _of(self, lane: str) -> list[ColumnElement[bool]]:
        return [self._places.c.table_name == self.main.name, self._places.c.lane == lane]

    def bunches(self, connection: Connection, *, lane: str) -> list[Bunch]:
        """The places of a limited queue. Some of their claims may stand no longer."""
        taken = self._places
        statement = select(taken.c.owner, taken.c.places).where(*self._of(lane))
        return [Bunch(*row) for row in connection.execute(statement)]

    def standing(self, connection: Connection, *, lane: str) -> dict[str, list[tuple[int, int]]]:
        """The claims that stand, as (record id, claim count), by owner."""
        taken, main = self._places, self.main
        rows = connection.execute(select(taken.c.owner, taken.c.claims).where(*self._of(lane)))
        listed = [(row.owner, _CLAIMS.decode(row.claims)) for row in rows]
        claimed = set[tuple[int, int]]()
        for batch in batches(record_id for _, claims in listed for record_id, _ in claims):
            statement = self._looked_up(select(main.c.record_id, main.c.claim_count)).where(
                main.c.record_id.in_(batch), main.c.processing_state == IN_PROCESSING
            )
            claimed.update((row[0], row[1]) for row in connection.execute(statement))
        found = dict[str, list[tuple[int, int]]]()
        for owner, claims in listed:
            found.setdefault(owner, []).extend(claim for claim in claims if claim in claimed)
        return found

    def free_places(self, connection: Connection, *, lane: str) -> None:
        """Delete all places of a limited queue."""
        connection.execute(delete(self._places).where(*self._of(lane)))

    def take_places(
        self, connection: Connection, *, lane: str, owner: str, claims: Sequence[tuple[int, int]]
    ) -> None:
        """Enter claims that have no places, given as (record id, claim count)."""
        record_id, claim_count = claims[0]
        row: dict[str, Any] = {
            "table_name": self.main.name,
            "lane": lane,
            "record_id": record_id,
            "claim_count": claim_count,
            "owner": owner,
            "places": len(claims),
            "claims": encoded(claims),
        }
        connection.execute(insert(self._places).inline(), row)

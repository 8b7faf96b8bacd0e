"""The statements on `queue_places`: which claims of a limited queue stand now.

Whoever writes here has locked the queue's limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, insert, select
from sqlalchemy.util import memoized_property

from sql.statements.base import IN_PROCESSING, batches
from sql.statements.outcomes import Outcomes
from sql.tables import in_schema, queue_places


class Places(Outcomes):
    """Places that claims of the main table's entries take."""

    @memoized_property
    def _places(self) -> Any:
        return in_schema(queue_places, self.main.schema)

    def places(self, connection: Connection, *, lane: str) -> list[Row[Any]]:
        """The places of a limited queue: record_id, owner and `stands`.

        The latter is None if the claim stands no longer. Each entry is looked up by its key.
        """
        taken, main = self._places, self.main
        same = and_(
            self._has_id(taken.c.record_id),
            main.c.claim_count == taken.c.claim_count,
            main.c.processing_state == IN_PROCESSING,
        )
        statement = self._looked_up(
            select(taken.c.record_id, taken.c.owner, main.c.record_id.label("stands"))
            .select_from(taken.outerjoin(main, same))
            .where(taken.c.table_name == main.name, taken.c.lane == lane)
        )
        return list(connection.execute(statement))

    def take_places(
        self, connection: Connection, *, lane: str, owner: str, claims: Sequence[tuple[int, int]]
    ) -> None:
        """Enter the claims, given as (record id, claim count); their ids have no places."""
        rows = [
            {
                "table_name": self.main.name,
                "lane": lane,
                "record_id": record_id,
                "claim_count": claim_count,
                "owner": owner,
            }
            for record_id, claim_count in sorted(claims)
        ]
        connection.execute(insert(self._places).inline(), rows)

    def free_places(self, connection: Connection, *, lane: str, ids: Sequence[int]) -> None:
        """Delete the places of these ids."""
        taken = self._places
        for batch in batches(ids):
            connection.execute(
                delete(taken).where(
                    taken.c.table_name == self.main.name,
                    taken.c.lane == lane,
                    taken.c.record_id.in_(batch),
                )
            )

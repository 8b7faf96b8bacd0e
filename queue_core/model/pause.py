"""A pause of a queue, of one handler, or of one order key."""

from __future__ import annotations

from datetime import datetime

import msgspec

from queue_core.model.lanes import Lane, paused_lane


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, or one handler or order key of it, that no node runs. Dates are aware, in UTC.

    Attributes:
        table: The main table.
        queue_name: The bus, or `service:queue`.
        handler: The name of the subscriber, if only that is paused.
        order_key: The order key, if only its entries are.
        paused_by: The person or process that paused it.
        reason: The reason, if it was told.
        since: The date on which it was paused.
        until: The date on which it ends by itself; None if it waits for `resume`.
    """

    table: str
    queue_name: str
    handler: str | None = None
    order_key: str | None = None
    paused_by: str
    reason: str | None = None
    since: datetime
    until: datetime | None = None

    @property
    def lane(self) -> Lane:
        """The lane in which its entries wait."""
        return paused_lane(self.queue_name, self.handler, self.order_key)


def is_in_force(pause: Pause, now: datetime) -> bool:
    """Whether a pause has not ended by itself."""
    return pause.until is None or now < pause.until

"""A posting with links on its way into the table."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from queue_core.model.posting import Posting


class Draft(msgspec.Struct):
    """A posting, its row, and its answer once that is known."""

    posting: Posting
    row: dict[str, Any]
    """The row to insert. A step that changes it puts another in its place."""
    inserts: bool = True
    """Whether it is to be inserted. A step that says no gives the answer."""
    answer: int | None = None
    """The record id that the post returns."""
    changed: datetime | None = None
    """The date that the post has given to another entry."""

    @property
    def record_id(self) -> int:
        """The id of the inserted entry."""
        assert self.answer is not None  # noqa: S101 -- read after the insertion alone
        return int(self.answer)

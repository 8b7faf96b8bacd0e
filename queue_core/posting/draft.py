"""A posting with links on its way into the table."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from queue_core.model.posting import Posting


class Draft:
    """A posting, its row, and its answer once that is known."""

    def __init__(self, posting: Posting, row: dict[str, Any]) -> None:
        self.posting = posting
        self.row = row
        """The row to insert. A step that changes it puts another in its place."""
        self.inserts = True
        """Whether it is to be inserted. A step that says no gives the answer."""
        self.answer: int | None = None
        """The record id that the post returns."""
        self.changed: datetime | None = None
        """The date that the post has given to another entry."""

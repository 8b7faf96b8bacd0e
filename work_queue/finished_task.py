"""A task of history: one that was deleted, of a queue that keeps history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """A task as it was when it was deleted.

    Attributes:
        id: Its id. A later task may have had the same.
        version: The version that was deleted.
        queue: The queue that it was in.
        claims: How often it was claimed.
        value: See `Task`. `UNREAD` as there.
        created: When it was inserted, by the database's clock.
        modified: When it was inserted, claimed or changed last.
        finished: When it was deleted.
        finished_by: The claimant who deleted it.
        attempt: See `Task`.
        err: See `Task`.
    """

    id: str
    version: int
    queue: str
    claims: int
    value: Any
    created: datetime
    modified: datetime
    finished: datetime
    finished_by: str
    attempt: int
    err: str


@dataclass(frozen=True, slots=True)
class KeptHistory:
    """A queue that keeps the history of its tasks, or kept it once.

    Attributes:
        queue: Its name.
        since: Since when it keeps it; None: it does so no more.
    """

    queue: str
    since: datetime | None

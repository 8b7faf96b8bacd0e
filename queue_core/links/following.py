"""Entries that are to be posted when others have ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Self

import msgspec

from queue_core.model.lanes import ANY_NODE
from queue_core.model.states import State


class Following(msgspec.Struct, kw_only=True):
    """An entry as it will be posted, but for its queue and its dates.

    Those that it has are of the time at which it was made.
    """

    creating_owner: str
    class_name: str
    event_json: str | None
    event_bytes: bytes | None
    codec: str
    user_token: str | None
    future_user_token: str | None
    search_key1: int | None
    search_key2: int | None
    created_date: datetime
    effective_date: datetime
    headers: str | None

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """The entry of a row that was made for a post."""
        return cls(**{name: row[name] for name in cls.__struct_fields__})

    def row(self, queue_name: str, now: datetime) -> dict[str, Any]:
        """The row to insert, which any node may claim.

        It is not due before `now`, and keeps the head start of its priority.
        """
        head_start = max(timedelta(), self.created_date - self.effective_date)
        return {
            **msgspec.structs.asdict(self),
            "queue_name": queue_name,
            "created_date": now,
            "effective_date": max(now, self.effective_date) - head_start,
            "processing_owner": None,
            "processing_available_date": None,
            "lane": ANY_NODE,
            "processing_state": State.AVAILABLE.value,
            "claim_count": 0,
        }

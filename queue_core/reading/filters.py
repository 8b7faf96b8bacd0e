"""The filters of reads of entries, by name."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypedDict

from queue_core.model.posting import SearchKey
from queue_core.model.states import States
from queue_core.storage.search_keys import Keyless, Unset


class FindFilters(TypedDict, total=False):
    """The filters of `find`, besides its limit."""

    search_key1: SearchKey | Keyless | Unset
    search_key2: SearchKey | Keyless | Unset
    states: States | None
    record_ids: Iterable[int] | None
    effective_before: datetime | None
    after_id: int | None


class HistoryFilters(TypedDict, total=False):
    """The filters of `history`, besides its limit."""

    search_key1: SearchKey | Keyless | Unset
    search_key2: SearchKey | Keyless | Unset
    states: States | None
    record_ids: Iterable[int] | None
    finished_before: datetime | None
    finished_since: datetime | None
    after_id: int | None
    error_type: str | None
    error_text: str | None


class FindOptions(FindFilters, total=False):
    """The options of `find`, besides its connection."""

    limit: int | None


class HistoryOptions(HistoryFilters, total=False):
    """The options of `history`, besides its connection."""

    limit: int | None

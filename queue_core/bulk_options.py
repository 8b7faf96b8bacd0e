"""The options of bulk changes: which entries, and how."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TypedDict

from queue_core.model.posting import SearchKey
from queue_core.model.states import States
from queue_core.reading.bulk import Stop
from queue_core.reading.truncation import Progress
from queue_core.storage.search_keys import Keyless, Unset


class FailedFilters(TypedDict, total=False):
    """The conditions on entries of history."""

    search_key1: SearchKey | Keyless | Unset
    search_key2: SearchKey | Keyless | Unset
    record_ids: Iterable[int] | None
    event_name: str | None
    error_type: str | None
    error_text: str | None
    finished_before: datetime | None
    finished_since: datetime | None


class WaitingFilters(TypedDict, total=False):
    """The conditions on live entries."""

    search_key1: SearchKey | Keyless | Unset
    search_key2: SearchKey | Keyless | Unset
    record_ids: Iterable[int] | None
    event_name: str | None
    effective_before: datetime | None


class BulkOptions(TypedDict, total=False):
    """The pace of a bulk change, and its reports."""

    dry_run: bool
    progress: Progress | None
    stop: Stop | None


class FailedOptions(FailedFilters, BulkOptions, total=False):
    """The options of a bulk change of history."""


class WaitingOptions(WaitingFilters, BulkOptions, total=False):
    """The options of a bulk change of live entries."""


class RetryAllOptions(FailedOptions, total=False):
    """The options of `retry_all`."""

    states: States
    all_subscribers: bool


class RescheduleAllOptions(WaitingOptions, total=False):
    """The options of `reschedule_all`."""

    at: datetime | None
    delay: timedelta | float | None


class DeadLetterOptions(FailedFilters, total=False):
    """The options of `dead_letters`."""

    limit: int | None

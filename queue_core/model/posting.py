"""A posting: one event that is to be posted or scheduled, with its options."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, TypedDict
from uuid import UUID

import msgspec

from queue_core.model.keyed import Keep, OnConflict
from queue_core.model.priority import NORMAL, Priority
from queue_core.runtime.exact import exact_text

SearchKey: TypeAlias = int | str | UUID
"""A key to find entries by.

It is a 64-bit integer, or a text of 1 to 255 characters. A UUID is its text.
"""


OrderFailure: TypeAlias = Literal["hold", "skip"]
"""The effect of a failed entry on those behind it that have its order key.

They wait until somebody retries or discards it ("hold"), or they go on ("skip").
"""


OnFailed: TypeAlias = Literal["cancel", "run", "hold"]
"""The fate of an entry if one that it waits for fails, or is removed.

It is removed, too ("cancel"), runs all the same ("run"), or waits for a person ("hold").
"""


Awaited: TypeAlias = int | tuple[str, str]
"""An entry that another one waits for: its id, or (queue name, idempotency key)."""


class Posting(msgspec.Struct, frozen=True, kw_only=True):
    """The event to post or notification to schedule, with its options.

    `event`: a dataclass, attrs, msgspec or pydantic instance, or a dict together with `event_name`.
    Search keys are 64-bit integers, texts of 1 to 255 characters or UUIDs. `headers` is a flat dict
    of strings. `at` is an aware date; None means now. `key` is an idempotency key, with `keep`,
    `on_conflict` and `key_wait` as for a post. Entries of one `order_key` run one after the other
    in the order of posting. `after` holds ids, or (queue name, key) pairs, of entries that it
    waits for. `group` is the id of the group of which it is a member. `max_run_seconds` limits
    each run. `priority` is for due entries. Of the entries of one `limit_key`, no more run at
    once than the queue's limit says.
    """

    event: object
    event_name: str | None = None
    search_key1: SearchKey | None = None
    search_key2: SearchKey | None = None
    user_token: str | None = None
    future_user_token: str | None = None
    headers: Mapping[str, str] | None = None
    at: datetime | None = None
    order_key: str | None = None
    order_failure: OrderFailure = "hold"
    key: str | None = None
    keep: Keep = "living"
    on_conflict: OnConflict = "return"
    key_wait: float | None = None
    after: Collection[Awaited] | None = None
    on_failed: OnFailed = "cancel"
    group: int | None = None
    max_run_seconds: float | None = None
    priority: Priority = NORMAL
    limit_key: str | None = None


PLAIN = Posting(event=None)
"""A posting whose options have their defaults."""


def is_plain(posting: Posting, option: str) -> bool:
    """Whether an option has its default."""
    value, plain = getattr(posting, option), getattr(PLAIN, option)
    # A value of another type may not answer to `==`.
    return value is plain or (plain is not None and exact_text(value) == plain)


class PostOptions(TypedDict, total=False):
    """The options of a post or a schedule, besides its connection and its key."""

    event_name: str | None
    search_key1: SearchKey | None
    search_key2: SearchKey | None
    user_token: str | None
    future_user_token: str | None
    headers: Mapping[str, str] | None
    at: datetime | None
    delay: timedelta | float | None
    order_key: str | None
    order_failure: OrderFailure
    keep: Keep
    on_conflict: OnConflict
    key_wait: float | None
    after: Collection[Awaited] | None
    on_failed: OnFailed
    group: int | None
    max_run_seconds: float | None
    priority: Priority
    limit_key: str | None


class KeyedOptions(PostOptions, total=False):
    """The options of a post or a schedule, besides its connection."""

    key: str | None

"""The checks of the options of a post that link its entries to others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from queue_core.model.posting import Posting
from queue_core.posting.grouped_posts import check_groups
from queue_core.posting.key_options import check_keys
from queue_core.posting.ordered_posts import check_order
from queue_core.posting.waiting_posts import awaited_by
from queue_core.runtime.exact import exact_duration, exact_integer, exact_text

_OPTIONS = (
    *("key", "keep", "on_conflict", "key_wait"),
    *("order_key", "order_failure", "on_failed", "group"),
)
_PLAIN = {type(None), str, int, float, timedelta}


def checked(queue_name: str, postings: Sequence[Posting]) -> list[Posting]:
    """The postings, with options of Python's own types. Raises InvalidPostError."""
    found = [_plain(posting) for posting in postings]
    check_keys(queue_name, found)
    check_order(queue_name, found)
    found = [_named_once(queue_name, posting) for posting in found]
    check_groups(queue_name, found)
    return found


def _plain(posting: Posting) -> Posting:
    changes: dict[str, object] = {}
    for option in _OPTIONS:
        value = getattr(posting, option)
        if type(value) not in _PLAIN:
            for exact in (exact_text, exact_duration, exact_integer):
                if (same := exact(value)) is not None:
                    changes[option] = same
    return msgspec.structs.replace(posting, **changes) if changes else posting


def _named_once(queue_name: str, posting: Posting) -> Posting:
    """The posting with the entries that it waits for as a set: an iterator tells them once."""
    awaited = awaited_by(queue_name, posting)
    return posting if awaited is None else msgspec.structs.replace(posting, after=awaited)

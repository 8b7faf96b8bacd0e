"""The column `subscribers_done`: how far the subscribers of an entry are."""

from __future__ import annotations

import msgspec

from queue_core.model.entry import SubscriberProgress


def encode_progress(progress: SubscriberProgress) -> str | None:
    """The value of `subscribers_done`: whether each subscriber succeeded.

    False: it has used up its retries.
    """
    return msgspec.json.encode(progress).decode() if progress else None


def succeeded(column: str | None) -> str | None:
    """Those of a column `subscribers_done` that succeeded.

    None if there are none, or if the column can't be read.
    """
    try:
        done: SubscriberProgress = {
            name: True for name, how in msgspec.json.decode(column or "{}").items() if how is True
        }
    except (msgspec.MsgspecError, AttributeError, RecursionError):
        return None
    return encode_progress(done)

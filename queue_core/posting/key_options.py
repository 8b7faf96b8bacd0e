"""The options of a post's idempotency key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import get_args

from queue_core.errors import InvalidPostError
from queue_core.model.keyed import KeepWord, OnConflict
from queue_core.model.posting import Posting, is_plain
from queue_core.model.refusal import refused
from queue_core.runtime.arguments import is_number
from queue_core.runtime.exact import exact_text
from queue_core.runtime.shown import shown
from queue_core.storage.arguments import storable_name
from sql.tables import KEY_LENGTH

KEEPS, CONFLICTS = get_args(KeepWord), get_args(OnConflict)


def check_keys(queue_name: str, postings: Sequence[Posting]) -> None:
    """Check the options of a post that are about keys. Raises InvalidPostError."""
    for posting in postings:
        if posting.key is None:
            check_needed(queue_name, posting, "key", "keep", "on_conflict", "key_wait")
            continue
        storable_name(posting.key, "key", limit=KEY_LENGTH, queue_name=queue_name)
        keep = posting.keep
        if isinstance(keep, timedelta):
            if keep < timedelta():
                raise refused(queue_name, "keep", keep, "a time that is not negative")
        elif exact_text(keep) not in KEEPS:
            raise refused(queue_name, "keep", keep, f"{', '.join(KEEPS)}, or a timedelta")
        if exact_text(posting.on_conflict) not in CONFLICTS:
            raise refused(queue_name, "on_conflict", posting.on_conflict, ", ".join(CONFLICTS))
        wait = posting.key_wait
        if wait is not None and not (is_number(wait) and wait >= 0):
            raise refused(queue_name, "key_wait", wait, "seconds, 0 or more")


def check_needed(queue_name: str, posting: Posting, needed: str, *options: str) -> None:
    """Refuse `options` that are given, since `needed` is not."""
    for option in options:
        if not is_plain(posting, option):
            value = getattr(posting, option)
            raise InvalidPostError(
                f"{queue_name}: {option}={shown(value)} needs {needed}=. Nothing was written.",
                queue_name=queue_name,
                key=option,
                value=shown(value),
            )

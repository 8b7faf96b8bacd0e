"""The options of a post's idempotency key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from queue_core.errors import InvalidPostError
from queue_core.model.posting import Posting
from queue_core.model.refusal import refused
from queue_core.runtime.arguments import is_number
from queue_core.runtime.shown import shown
from queue_core.storage.arguments import name
from sql.tables import KEY_LENGTH

KEEPS = ("waiting", "living", "forever")
CONFLICTS = ("return", "raise", "replace", "requeue", "debounce")


def check_keys(queue_name: str, postings: Sequence[Posting]) -> None:
    """Check the options of a post that are about keys. Raises InvalidPostError."""
    for posting in postings:
        if posting.key is None:
            unset = {"keep": "living", "on_conflict": "return", "key_wait": None}
            check_needed(queue_name, posting, "key", unset)
            continue
        name(posting.key, "key", limit=KEY_LENGTH, queue_name=queue_name)
        keep = posting.keep
        if isinstance(keep, timedelta):
            if keep < timedelta():
                raise refused(queue_name, "keep", keep, "a time that is not negative")
        elif keep not in KEEPS:
            raise refused(queue_name, "keep", keep, f"{', '.join(KEEPS)}, or a timedelta")
        if posting.on_conflict not in CONFLICTS:
            raise refused(queue_name, "on_conflict", posting.on_conflict, ", ".join(CONFLICTS))
        wait = posting.key_wait
        if wait is not None and not (is_number(wait) and wait >= 0):
            raise refused(queue_name, "key_wait", wait, "seconds, 0 or more")


def check_needed(
    queue_name: str, posting: Posting, needed: str, defaults: Mapping[str, object]
) -> None:
    """Refuse options with other values than their `defaults`, since `needed` is not given."""
    for option, default in defaults.items():
        value = getattr(posting, option)
        if value != default:
            raise InvalidPostError(
                f"{queue_name}: {option}={shown(value)} needs {needed}=. Nothing was written.",
                queue_name=queue_name,
                key=option,
                value=shown(value),
            )

"""Refusals of posts to the in-memory bus."""

from __future__ import annotations

from collections.abc import Sequence

from queue_core.errors import InvalidPostError
from queue_core.model.after_rules import AfterRules
from queue_core.model.posting import Posting, is_plain
from queue_core.runtime.shown import shown
from queue_core.storage.arguments import flag

_REASONS = {
    "order_key": "there is no order to keep",
    "priority": "events run in the order of posting",
    "key": "nothing outlives the process",
    "limit_key": "nothing is limited",
    "group": "no group is counted",
    "after": "nothing waits",
}


def refuse_links(queue_name: str, postings: Sequence[Posting], rules: AfterRules) -> None:
    """Refuse options that link entries to others, or order them. Raises InvalidPostError."""
    for posting in rules.applied(queue_name, postings):
        for option, reason in _REASONS.items():
            value = getattr(posting, option)
            # An empty `after` waits for nothing.
            if flag(value, option) if option == "after" else not is_plain(posting, option):
                raise InvalidPostError(
                    f"{queue_name}: {option} needs the persistent bus: in memory {reason}. "
                    "Nothing was posted.",
                    queue_name=queue_name,
                    key=option,
                    value=shown(value),
                )

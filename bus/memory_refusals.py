"""Refusals of posts to the in-memory bus."""

from __future__ import annotations

from collections.abc import Sequence

from queue_core.errors import InvalidPostError
from queue_core.model.after_rules import AfterRules
from queue_core.model.posting import Posting
from queue_core.model.priority import NORMAL
from queue_core.runtime.shown import shown


def refuse_links(queue_name: str, postings: Sequence[Posting], rules: AfterRules) -> None:
    """Refuse options that link entries to others, or order them. Raises InvalidPostError."""
    if any(posting.order_key is not None for posting in postings):
        raise InvalidPostError(
            "order_key needs the persistent bus: in memory there is no order to keep. Nothing was "
            "posted.",
            key="order_key",
        )
    for posting in postings:
        if posting.priority != NORMAL:
            raise InvalidPostError(
                f"{queue_name}: priority={shown(posting.priority)} needs the persistent bus: in "
                "memory events run in the order of posting. Nothing was posted.",
                queue_name=queue_name,
                key="priority",
            )
        if posting.key is not None:
            raise InvalidPostError(
                f"{queue_name}: key={shown(posting.key)}: keys need the persistent bus; in memory "
                "nothing outlives the process. Nothing was posted.",
                queue_name=queue_name,
                key="key",
            )
    if any(posting.limit_key is not None for posting in postings):
        raise InvalidPostError(
            "limit_key needs the persistent bus: in memory nothing is limited. Nothing was posted.",
            key="limit_key",
        )
    if any(posting.group is not None for posting in postings):
        raise InvalidPostError(
            "group needs the persistent bus: in memory no group is counted. Nothing was posted.",
            key="group",
        )
    if any(posting.after for posting in rules.applied(queue_name, postings)):
        raise InvalidPostError(
            "after needs the persistent bus: in memory nothing waits. Nothing was posted.",
            key="after",
        )

"""The time limit that a post sets for its entry's runs. A mark among the headers holds it."""

from __future__ import annotations

from queue_core.model.refusal import refused
from queue_core.runtime.arguments import is_number
from sql.search_keys import RESERVED, texts, with_marks

_NAME = "max_run_seconds"
RUN_LIMIT_MARK = RESERVED + _NAME


def with_run_limit(headers: str | None, seconds: object, queue_name: str) -> str:
    """Headers with a limit. Raises InvalidPostError."""
    if not (is_number(seconds) and seconds > 0):
        raise refused(queue_name, _NAME, seconds, "a number of seconds above 0")
    return with_marks(headers, {RUN_LIMIT_MARK: repr(float(seconds))})


def run_limit_of(headers: str | None) -> float | None:
    """The seconds that a run may take by the headers; None if they say nothing."""
    text = texts(headers).get(_NAME)
    try:
        return None if text is None else float(text)
    except ValueError:  # written by hand
        return None

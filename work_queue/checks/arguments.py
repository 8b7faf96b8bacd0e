"""The arguments of calls: names, times and limits."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import datetime, timedelta

from queue_core.errors import InvalidRequestError
from queue_core.model.names import storable_fault
from queue_core.runtime.arguments import is_number
from queue_core.runtime.clock import in_utc
from queue_core.runtime.shown import shown
from sql.statements.base import LARGEST_COUNT
from sql.tables import (
    CLAIMANT_BYTES,
    DOC_KEY_BYTES,
    NAMESPACE_BYTES,
    TASK_ID_BYTES,
    TASK_QUEUE_LENGTH,
)
from work_queue.document import DocClaim
from work_queue.refs import TaskPlace, TaskRef
from work_queue.requests import DocQuery, HistoryQuery, TaskQuery

LONGEST_SECONDS = 100 * 365.25 * 86_400.0
"""The longest lease or delay: a century."""
HISTORY_IDS = 500
"""The most ids of tasks of history that one call reads."""
ERROR_TEXT = 1_000
"""Characters of a sought text of errors at most."""


def not_allowed(key: str, value: object, allowed: str) -> InvalidRequestError:
    """The error of a value that can't be accepted."""
    return InvalidRequestError(
        f"{key}={shown(value)} is not allowed. Nothing was written. Allowed: {allowed}.",
        key=key,
        value=value,
    )


def text(value: object, *, key: str) -> str:
    """A text that a database can store, as a plain `str`."""
    if not isinstance(value, str):
        raise not_allowed(key, value, "a text")
    if fault := storable_fault(value):
        raise not_allowed(key, value, fault)
    return str.__str__(value)


def of_bytes(value: object, limit: int, *, key: str, least: int = 1) -> str:
    """A text whose bytes in UTF-8 are within the limits."""
    given = text(value, key=key)
    if not least <= (size := len(given.encode())) <= limit:
        raise not_allowed(key, value, f"{least} to {limit} bytes, not {size}")
    return given


def queue(value: object, *, key: str = "queue") -> str:
    """The name of a queue."""
    given = text(value, key=key)
    if not 1 <= len(given) <= TASK_QUEUE_LENGTH:
        raise not_allowed(key, value, f"1 to {TASK_QUEUE_LENGTH} characters, not {len(given)}")
    return given


def queues(values: Iterable[object]) -> tuple[str, ...]:
    """Names of queues, each once."""
    found = tuple(dict.fromkeys(queue(value, key="queues") for value in values))
    if not found:
        raise InvalidRequestError("no queue was named. Name one at least.", key="queues")
    return found


def claimant(value: object, default: str) -> str:
    """Who claims."""
    return default if value is None else of_bytes(value, CLAIMANT_BYTES, key="claimant")


def task_id(value: object) -> str:
    """The id of a task, or of a doc."""
    return of_bytes(value, TASK_ID_BYTES, key="id")


def namespace(value: object) -> str:
    """The namespace of docs."""
    return of_bytes(value, NAMESPACE_BYTES, key="namespace")


def doc_key(value: object, *, key: str = "key", least: int = 1) -> str:
    """The key of a set, or one inside it."""
    return of_bytes(value, DOC_KEY_BYTES, key=key, least=least)


def count(value: object, *, key: str, least: int = 0) -> int:
    """A number from `least` on that a column can hold."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST_COUNT:
        raise not_allowed(key, value, f"an integer from {least} to {LARGEST_COUNT}")
    return value


def error_text(value: object) -> str | None:
    """A part of an error's text."""
    if value is None:
        return None
    given = text(value, key="error_text")
    if not 1 <= len(given) <= ERROR_TEXT:
        raise not_allowed("error_text", value, f"1 to {ERROR_TEXT} characters")
    return given


def limit(value: object) -> int:
    """How many are claimed."""
    if (given := count(value, key="limit")) < 1:
        raise not_allowed("limit", value, "1 or more")
    return given


def bound(value: object) -> int | None:
    """How many are read; None: all."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value > LARGEST_COUNT:
        raise not_allowed("limit", value, "an integer, or None")
    return value if value > 0 else None


def seconds(value: object, *, key: str) -> float:
    """Seconds from now, of either sign; a timedelta counts too."""
    given = value.total_seconds() if isinstance(value, timedelta) else value
    if not is_number(given) or abs(given) > LONGEST_SECONDS:
        raise not_allowed(key, value, "seconds, or a timedelta, of less than a century")
    return float(given)


def lease(value: object, default: float) -> float:
    """The seconds of a lease; 0 is the default, too."""
    if value is None:
        return default
    if (given := seconds(value, key="lease_seconds")) < 0:
        raise not_allowed("lease_seconds", value, "0 or more")
    return given or default


def wait(value: object) -> float | None:
    """The longest wait in seconds; None: for ever."""
    if value is None:
        return None
    if not is_number(value) or value < 0:
        raise not_allowed("timeout_seconds", value, "seconds, 0 or more, or None")
    return min(float(value), threading.TIMEOUT_MAX)


def check_arrival(at: object, delay: object) -> None:
    """Check a date or seconds from now, of which one at most may be given."""
    if at is not None and delay is not None:
        raise InvalidRequestError("give either at=… or delay=…, not both", key="at")
    date(at, key="at")
    if delay is not None:
        seconds(delay, key="delay")


def date(value: object, *, key: str) -> datetime | None:
    """An aware date, in UTC."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise not_allowed(key, value, "an aware datetime")
    return in_utc(value, key=key)


def ids(values: Iterable[object] | None) -> tuple[str, ...] | None:
    """Ids that are read, each once."""
    return None if values is None else texts(values, key="ids")


def texts(values: object, *, key: str) -> tuple[str, ...]:
    """Texts, each once."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise not_allowed(key, values, "a collection of texts")
    return tuple(dict.fromkeys(text(value, key=key) for value in values))


def task_query(query: TaskQuery) -> TaskQuery:
    """A read of tasks."""
    if query.queue is None and not query.ids:
        raise InvalidRequestError("neither a queue nor ids were named. Name one.", key="queue")
    if query.queue is not None:
        queue(query.queue)
    if query.claimant is not None:
        text(query.claimant, key="claimant")
    if query.after is not None:
        if not isinstance(query.after, TaskPlace):
            raise not_allowed("after", query.after, "a TaskPlace, such as task.place")
        if query.ids is not None:
            raise InvalidRequestError("give either ids=… or after=…, not both", key="after")
    return query


def history_query(
    of_queue: object,
    of_ids: Iterable[object] | None,
    *,
    since: object,
    before: object,
    limit: object,
    with_values: object,
) -> HistoryQuery:
    """A read of history."""
    found = ids(of_ids)
    if of_queue is None and not found:
        raise InvalidRequestError("neither a queue nor ids were named. Name one.", key="queue")
    if found is not None and len(found) > HISTORY_IDS:
        raise not_allowed("ids", f"{len(found)} ids", f"{HISTORY_IDS} at most")
    return HistoryQuery(
        None if of_queue is None else queue(of_queue),
        found,
        date(since, key="since"),
        date(before, key="before"),
        bound(limit),
        bool(with_values),
    )


def doc_query(query: DocQuery) -> DocQuery:
    """A read of docs."""
    namespace(query.namespace)
    for key, value in {"first_key": query.first_key, "end_key": query.end_key}.items():
        text(value, key=key)
    if query.key is not None:
        text(query.key, key="key")
    return query


def doc_claims(claims: Iterable[object]) -> tuple[DocClaim, ...]:
    """The sets of a claim, each once."""
    found = list[DocClaim]()
    for claim in claims:
        if not isinstance(claim, DocClaim):
            raise not_allowed("claims", claim, "DocClaims")
        namespace(claim.namespace)
        doc_key(claim.key)
        found.append(claim)
    if not found:
        raise InvalidRequestError("no doc set was named. Name one at least.", key="claims")
    if len({(claim.namespace, claim.key) for claim in found}) < len(found):
        raise InvalidRequestError("a doc set was named twice. Name each once.", key="claims")
    return tuple(found)


def until(value: object, lease_seconds: object) -> TaskRef | None:
    """The task by which doc sets are held."""
    if value is None:
        return None
    if not isinstance(value, TaskRef):
        raise not_allowed("until", value, "a TaskRef, such as task.ref")
    if lease_seconds is not None:
        raise InvalidRequestError("give either lease_seconds=… or until=…, not both", key="until")
    if not value.queue:
        raise not_allowed("until", value, "a TaskRef with the task's queue")
    return value

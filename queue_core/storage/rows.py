"""From a posting to the columns of its row.

Everything posted is checked here, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, get_args
from uuid import UUID

import msgspec

from queue_core.errors import InvalidPostError, NameTooLongError
from queue_core.links.limit_keys import LIMIT_KEY_MARK
from queue_core.model.captured_context import NO_CONTEXT, CapturedContext
from queue_core.model.config import QueueConfig
from queue_core.model.entry import Entry, Posting, SearchKey, State
from queue_core.model.event_types import EventTypes
from queue_core.model.known_codecs import Codecs, Encoded
from queue_core.model.lanes import Lane
from queue_core.model.names import name_fault
from queue_core.model.priority import HEAD_STARTS, NORMAL, Priority
from queue_core.model.run_limit import with_limit
from queue_core.runtime.clock import Clock, in_utc
from queue_core.runtime.shown import shown
from queue_core.storage.packet import check_packet
from sql.search_keys import (
    RESERVED,
    SEARCH_KEYS,
    StoredKey,
    headers_with,
    of_text,
    texts,
    with_marks,
)
from sql.statements.base import AVAILABLE, IN_PROCESSING
from sql.tables import CLASS_NAME_LENGTH, LIMIT_KEY_LENGTH, NAME_LENGTH

_SMALLEST_KEY, _LARGEST_KEY = -(2**63), 2**63 - 1
_KEY_LENGTH = 255
"""Longest search key that is a text, in characters."""
_TOKEN_LENGTH = 36


class Unset:
    """Not given, where None is a value."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


class Keyless:
    """Without a search key; its one value is `KEYLESS`."""

    def __repr__(self) -> str:
        return "KEYLESS"


KEYLESS = Keyless()
"""In a search or a removal: only entries that have no such key."""


class Rows:
    """Makes rows of postings for one bus or service."""

    def __init__(
        self,
        config: QueueConfig,
        clock: Clock,
        types: EventTypes,
        codecs: Codecs,
        *,
        context: CapturedContext = NO_CONTEXT,
        packet_bytes: int | None = None,
    ) -> None:
        """`packet_bytes`: what the server takes in one statement; None: anything."""
        self._packet_bytes = packet_bytes
        self._config = config
        self._clock = clock
        self._types = types
        self._validators = types.validators
        self._codecs = codecs
        self._context = context or None
        self._checked = set[str]()
        """Names of types that were found storable."""

    def rows(
        self,
        queue_name: str,
        postings: Sequence[Posting],
        *,
        creator: str,
        lane: Lane,
        claimed: bool,
    ) -> list[dict[str, Any]]:
        """The rows of `postings`. `claimed`: born IN_PROCESSING by `creator`.

        Raises InvalidPostError or PayloadError for the first posting that can't be stored; nothing
        is written then.
        """
        now = self._clock.now()
        common = self.common(queue_name, now, creator=creator, lane=lane, claimed=claimed)
        return [self._row(common, queue_name, posting, now) for posting in postings]

    def common(
        self, queue_name: str, now: datetime, *, creator: str, lane: Lane, claimed: bool = False
    ) -> dict[str, Any]:
        """The columns that all rows of one post share."""
        return {
            "queue_name": queue_name,
            "created_date": now,
            "creating_owner": creator,
            "processing_owner": creator if claimed else None,
            "processing_available_date": now + timedelta(seconds=self._config.claim_seconds)
            if claimed
            else None,
            "lane": lane,
            "processing_state": IN_PROCESSING if claimed else AVAILABLE,
            "claim_count": 1 if claimed else 0,
        }

    def _row(
        self, common: dict[str, Any], queue_name: str, posting: Posting, now: datetime
    ) -> dict[str, Any]:
        class_name, encoded = self._encoded(queue_name, posting)
        # Called for each entry: what is not given costs no call.
        token, future = posting.user_token, posting.future_user_token
        key1, key2 = posting.search_key1, posting.search_key2
        headers = None if posting.headers is None else _headers(posting.headers, queue_name)
        if self._context is not None:
            headers = self._context.capture(headers, queue_name)
        if posting.max_run_seconds is not None:
            headers = with_limit(headers, posting.max_run_seconds, queue_name)
        if posting.limit_key is not None:
            headers = _with_limit_key(headers, posting.limit_key, queue_name)
        if key1 is not None or key2 is not None:
            keyed = columns_of(self.keys(queue_name, search_key1=key1, search_key2=key2), headers)
            key1, key2, headers = keyed["search_key1"], keyed["search_key2"], keyed["headers"]
        return {
            **common,
            "class_name": class_name,
            "event_json": encoded.event_json,
            "event_bytes": encoded.event_bytes,
            "codec": encoded.codec,
            "user_token": None if token is None else _token(token, "user_token", queue_name),
            "future_user_token": None
            if future is None
            else _token(future, "future_user_token", queue_name),
            "search_key1": key1,
            "search_key2": key2,
            "effective_date": now
            if posting.at is None and posting.priority == NORMAL
            else _date(posting, now, queue_name),
            "headers": headers,
        }

    def payload(self, queue_name: str, posting: Posting) -> dict[str, Any]:
        """The columns of an event's name and payload. Raises InvalidPostError or PayloadError."""
        class_name, encoded = self._encoded(queue_name, posting)
        return {"class_name": class_name, **msgspec.structs.asdict(encoded)}

    def _encoded(self, queue_name: str, posting: Posting) -> tuple[str, Encoded]:
        event_name = posting.event_name
        if event_name is not None:
            event_name = name(event_name, "event_name", limit=CLASS_NAME_LENGTH)
        class_name = self._types.name_of(posting.event, event_name)
        if event_name is None and class_name not in self._checked:
            name(class_name, "event_name", limit=CLASS_NAME_LENGTH)
            self._checked.add(class_name)
        if self._validators.declared:
            self._validators.check(queue_name, class_name, posting.event)
        encoded = self._codecs.encode(
            posting.event, class_name, self._config.max_payload_bytes, queue_name
        )
        if self._packet_bytes is not None:
            check_packet(class_name, encoded, self._packet_bytes)
        return class_name, encoded

    def keys(
        self, queue_name: str, **keys: SearchKey | Unset | None
    ) -> dict[str, StoredKey | None]:
        """The search keys that are given. Raises InvalidPostError."""
        return {
            name: search_key(value, name, queue_name)
            for name, value in keys.items()
            if not isinstance(value, Unset)
        }

    def entry(self, record_id: int, row: dict[str, Any]) -> Entry:
        """The entry of a row that was just inserted."""
        entry = Entry(
            **{**row, "record_id": record_id, "processing_state": State(row["processing_state"])}
        )
        found = {name: text for name, text in texts(entry.headers).items() if name in SEARCH_KEYS}
        return msgspec.structs.replace(entry, **found) if found else entry


def _with_limit_key(headers: str | None, limit_key: object, queue_name: str) -> str:
    key = name(limit_key, "limit_key", limit=LIMIT_KEY_LENGTH, queue_name=queue_name)
    if not key:
        raise InvalidPostError(
            f"{queue_name}: limit_key='' is not allowed: a text that is not empty. Nothing was written.",
            queue_name=queue_name,
            key="limit_key",
            value="",
        )
    return with_marks(headers, {LIMIT_KEY_MARK: key})


def _date(posting: Posting, now: datetime, queue_name: str) -> datetime:
    """The date by which claims go: a priority has a head start, which lets nothing run early."""
    at, priority = now if posting.at is None else in_utc(posting.at, key="at"), posting.priority
    if priority == NORMAL:
        return at
    why = ""
    if priority not in get_args(Priority):
        why = f"Allowed: {', '.join(HEAD_STARTS)}"
    elif at > now or posting.after:
        why = "It is for what is due now: without a later date, and without after"
    if why:
        raise InvalidPostError(
            f"{queue_name}: priority={shown(priority)} is not allowed. {why}. Nothing was written.",
            queue_name=queue_name,
            key="priority",
            value=shown(priority),
        )
    return min(at, now) - HEAD_STARTS[priority]


def columns_of(keys: Mapping[str, StoredKey | None], headers: str | None) -> dict[str, Any]:
    """The columns of search keys, and `headers` as they are with these."""
    columns: dict[str, Any] = {
        column: None if key is None else key.number for column, key in keys.items()
    }
    if headers is not None or any(
        key is not None and key.text is not None for key in keys.values()
    ):
        headers = headers_with(headers, keys)
    return {**columns, "headers": headers}


def search_key(value: Any, key: str, queue_name: str) -> StoredKey | None:
    """Check a search key.

    Raises InvalidPostError unless it is a 64-bit integer, a UUID or a text that can be stored.
    """
    if value is None:
        return None
    if isinstance(value, UUID):
        return of_text(str(value))
    if isinstance(value, str):
        return of_text(name(value, key, limit=_KEY_LENGTH, queue_name=queue_name))
    if not _is_integer(value):
        raise InvalidPostError(
            f"{queue_name}: {key}={shown(value)} ({type(value).__name__}) can't be a search key. "
            f"Allowed: 64-bit integers, UUIDs, texts of 1 to {_KEY_LENGTH} characters, or None. "
            "Nothing was written.",
            queue_name=queue_name,
            key=key,
        )
    # A subclass such as IntEnum is nothing that every driver knows.
    return StoredKey(int(value))


def sought_key(value: Any, key: str, queue_name: str) -> StoredKey | None:
    """The key that rows are compared with, None for KEYLESS.

    Raises InvalidPostError for what is neither a search key nor KEYLESS.

    None is most often a variable that was never set: taken as a key it would mean the entries of
    everybody else.
    """
    if isinstance(value, Keyless):
        return None
    if value is None:
        raise InvalidPostError(
            f"{queue_name}: {key}=None names no entry. Nothing was read or changed; for entries without this key, "
            f"pass {key}=KEYLESS.",
            queue_name=queue_name,
            key=key,
        )
    return search_key(value, key, queue_name)


def integer(value: Any, key: str, *, least: int = _SMALLEST_KEY) -> int:
    """Check an id or a limit.

    Raises InvalidPostError unless it is a 64-bit integer of `least` or more.
    """
    if not _is_integer(value) or value < least:
        raise InvalidPostError(
            f"{key}={shown(value)} ({type(value).__name__}) is no 64-bit integer"
            f"{f' of {least} or more' if least > _SMALLEST_KEY else ''}. Nothing was changed.",
            key=key,
            value=shown(value),
        )
    return int(value)


def _is_integer(value: Any) -> bool:
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and _SMALLEST_KEY <= value <= _LARGEST_KEY
    )


def name(value: Any, key: str, *, limit: int = NAME_LENGTH, queue_name: str | None = None) -> str:
    """Check a name or token.

    Raises InvalidPostError if it is none that every database can store.
    """
    fault = (
        name_fault(value, limit)
        if isinstance(value, str)
        else f"a text, not a {type(value).__name__}"
    )
    if fault is None:
        return str.__str__(value)  # an Enum's own would be another text
    error = NameTooLongError if isinstance(value, str) and len(value) > limit else InvalidPostError
    raise error(
        f"{key}={shown(value)} is not allowed: {fault}. Nothing was written.",
        queue_name=queue_name,
        key=key,
        value=shown(value),
        limit=limit,
    )


def _token(value: Any, key: str, queue_name: str) -> str:
    try:
        text = str(value)  # such as a UUID's
    except Exception as error:
        raise InvalidPostError(
            f"{queue_name}: {key} is a {type(value).__name__} that has no text. Nothing was written.",
            queue_name=queue_name,
            key=key,
        ) from error
    return text and name(text, key, limit=_TOKEN_LENGTH, queue_name=queue_name)


def _headers(value: Any, queue_name: str) -> str:
    try:
        # Strict: msgspec would write numbers and dates as texts.
        headers = msgspec.convert(value, dict[str, str])
        text = msgspec.json.encode(headers).decode()
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise InvalidPostError(
            f"{queue_name}: headers must be a flat dict of strings: {error}. Nothing was written.",
            queue_name=queue_name,
            key="headers",
        ) from error
    if any(name.startswith(RESERVED) for name in headers):
        raise InvalidPostError(
            f"{queue_name}: names of headers that begin with {RESERVED} are the library's. "
            "Nothing was written.",
            queue_name=queue_name,
            key="headers",
        )
    return text

"""From a posting to the columns of its row.

Everything posted is checked here, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec

from queue_core.errors import InvalidPostError
from queue_core.links.limit_keys import LIMIT_KEY_MARK
from queue_core.model.captured_context import MARK as CONTEXT_MARK
from queue_core.model.captured_context import NO_CONTEXT, CapturedContext
from queue_core.model.config import QueueConfig
from queue_core.model.entry import Entry
from queue_core.model.event_types import EventTypes
from queue_core.model.known_codecs import Codecs, Encoded
from queue_core.model.lanes import Lane
from queue_core.model.posting import Posting, SearchKey
from queue_core.model.priority import HEAD_STARTS, NORMAL
from queue_core.model.run_limit import RUN_LIMIT_MARK, with_run_limit
from queue_core.model.states import State
from queue_core.runtime.clock import Clock, in_utc
from queue_core.runtime.exact import exact_text
from queue_core.runtime.shown import a_kind, shown, text_of
from queue_core.storage.arguments import storable_name
from queue_core.storage.packet import check_packet
from queue_core.storage.search_keys import Unset, columns_of, search_key
from sql.search_keys import RESERVED, SEARCH_KEYS, StoredKey, texts, with_marks
from sql.statements.base import AVAILABLE, IN_PROCESSING
from sql.tables import CLASS_NAME_LENGTH, LIMIT_KEY_LENGTH

_TOKEN_LENGTH = 36
"""Characters of a user token at most: a UUID as text."""

_OWN = {
    CONTEXT_MARK,
    RUN_LIMIT_MARK,
    LIMIT_KEY_MARK,
    *(RESERVED + column for column in SEARCH_KEYS),
}
"""Marks that are of an entry alone. All others link it to rows of other tables."""


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
        """`packet_bytes`: the most that the server takes in one statement; None: anything."""
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
            "processing_available_date": (
                now + timedelta(seconds=self._config.claim_seconds) if claimed else None
            ),
            "lane": lane,
            "processing_state": IN_PROCESSING if claimed else AVAILABLE,
            "claim_count": 1 if claimed else 0,
        }

    def _row(
        self, common: dict[str, Any], queue_name: str, posting: Posting, now: datetime
    ) -> dict[str, Any]:
        class_name, encoded = self._encoded(queue_name, posting)
        # Called for each entry: an option that is not given costs no call.
        token, future = posting.user_token, posting.future_user_token
        key1, key2 = posting.search_key1, posting.search_key2
        headers = None if posting.headers is None else _headers(posting.headers, queue_name)
        if self._context is not None:
            headers = self._context.capture(headers, queue_name)
        if posting.max_run_seconds is not None:
            headers = with_run_limit(headers, posting.max_run_seconds, queue_name)
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
            "future_user_token": (
                None if future is None else _token(future, "future_user_token", queue_name)
            ),
            "search_key1": key1,
            "search_key2": key2,
            "effective_date": (
                now
                if posting.at is None and posting.priority is NORMAL
                else _date(posting, now, queue_name)
            ),
            "headers": headers,
        }

    def payload(self, queue_name: str, posting: Posting) -> dict[str, Any]:
        """The columns of an event's name and payload. Raises InvalidPostError or PayloadError."""
        class_name, encoded = self._encoded(queue_name, posting)
        return {"class_name": class_name, **msgspec.structs.asdict(encoded)}

    def _encoded(self, queue_name: str, posting: Posting) -> tuple[str, Encoded]:
        event_name = posting.event_name
        if event_name is not None:
            event_name = storable_name(event_name, "event_name", limit=CLASS_NAME_LENGTH)
        class_name = self._types.name_of(posting.event, event_name)
        if event_name is None and class_name not in self._checked:
            storable_name(class_name, "event_name", limit=CLASS_NAME_LENGTH)
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


def headers_of_copy(headers: str | None) -> str | None:
    """The headers of an entry for a copy that is linked to nothing: a replay, in any database.

    Its search keys, limits and context stay. Its group, order key and key don't: their ids and rows
    are of the database that it was posted to, and of the entry itself.
    """
    if not isinstance(headers, str) or RESERVED not in headers:
        return headers
    try:
        found = msgspec.json.decode(headers, type=dict[str, str])
    except (msgspec.MsgspecError, RecursionError):
        return headers  # of a row by hand: the copy ends as that one did
    kept = {one: text for one, text in found.items() if one[:1] != RESERVED or one in _OWN}
    return msgspec.json.encode(kept).decode() if kept else None


def _with_limit_key(headers: str | None, limit_key: object, queue_name: str) -> str:
    key = storable_name(limit_key, "limit_key", limit=LIMIT_KEY_LENGTH, queue_name=queue_name)
    return with_marks(headers, {LIMIT_KEY_MARK: key})


def _date(posting: Posting, now: datetime, queue_name: str) -> datetime:
    """The date by which claims go: a priority has a head start, which lets nothing run early."""
    at, priority = now, exact_text(posting.priority) or ""
    if posting.at is not None:
        at = in_utc(posting.at, key="at", queue_name=queue_name)
    if priority == NORMAL:
        return at
    why = ""
    if priority not in HEAD_STARTS:
        why = f"Allowed: {', '.join(HEAD_STARTS)}"
    elif at > now or posting.after:
        why = "It is for entries that are due now: without a later date, and without after"
    if why:
        raise InvalidPostError(
            f"{queue_name}: priority={shown(posting.priority)} is not allowed. {why}. Nothing was "
            "written.",
            queue_name=queue_name,
            key="priority",
            value=shown(posting.priority),
        )
    return min(at, now) - HEAD_STARTS[priority]


def _token(value: Any, key: str, queue_name: str) -> str:
    text = exact_text(value)  # not by `str`, which tells the name of an Enum's member
    if text is None:
        try:
            text = str(value)  # such as a UUID's
        except Exception as error:
            raise InvalidPostError(
                f"{queue_name}: {key} is {a_kind(type(value))} that has no text. Nothing was "
                "written.",
                queue_name=queue_name,
                key=key,
            ) from error
    return text and storable_name(text, key, limit=_TOKEN_LENGTH, queue_name=queue_name)


def _fault_of(headers: object) -> str | None:
    """The first header whose name or value is no string."""
    if not isinstance(headers, Mapping):
        return None
    with suppress(Exception):  # of the caller's mapping
        for header, text in headers.items():
            for part, found in (("name", header), ("value", text)):
                if not isinstance(found, str):
                    return f"the {part} of {shown(header)} is {a_kind(type(found))}"
    return None


def _headers(value: Any, queue_name: str) -> str:
    try:
        # Strict: msgspec would write numbers and dates as texts.
        headers = msgspec.convert(value, dict[str, str])
        # Of the types that a dict of texts can hold, subclasses of `str` alone need a hook.
        text = msgspec.json.encode(headers, enc_hook=exact_text).decode()
    except Exception as error:  # the caller's mapping may raise anything
        raise InvalidPostError(
            f"{queue_name}: headers must be a flat dict of strings: "
            f"{_fault_of(value) or text_of(error)}. Nothing was written.",
            queue_name=queue_name,
            key="headers",
        ) from error
    if any(str.startswith(name, RESERVED) for name in headers):
        raise InvalidPostError(
            f"{queue_name}: names of headers that begin with {RESERVED} are reserved for the "
            "library. Nothing was written.",
            queue_name=queue_name,
            key="headers",
        )
    return text

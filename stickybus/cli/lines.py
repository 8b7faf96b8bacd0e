"""JSON lines to be posted: the meaning of their fields, and the faults of a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from queue_core.model.posting import Posting
from stickybus.cli.moments import aware

BATCH_LINES = 500
"""Lines that one transaction posts at most."""
BATCH_BYTES = 16_000_000
"""A batch ends at this many lines or bytes: a transaction of a bounded size."""


class BadLineError(ValueError):
    """A line that can't be posted; its text is the reason."""


@dataclass(frozen=True)
class Line:
    """One line of the input that holds anything; `number` counts from 1."""

    number: int
    text: bytes


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The conversion of a line to a posting.

    `event` is the name of all events, or `event_field` the field that holds it.
    """

    event: str | None = None
    event_field: str | None = None
    key1: str | None = None
    key2: str | None = None
    payload: str = "payload"
    at: str | None = None
    delay: timedelta | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options that all postings share, by the names of `Posting`."""
    key: str | None = None

    def posting(self, line: Line, *, now: datetime) -> Posting:
        """The posting of a line. Raises BadLineError."""
        try:
            found = msgspec.json.decode(line.text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadLineError(f"not JSON: {error}") from error
        except RecursionError as error:
            raise BadLineError("not JSON: nested too deeply") from error
        if not isinstance(found, dict):
            raise BadLineError(f"{_kind(found)}, not an object")
        payload = found.get(self.payload, found)
        if not isinstance(payload, dict):
            raise BadLineError(
                f"the payload, field {self.payload!r}, is {_kind(payload)}, not an object"
            )
        return Posting(
            event=payload,
            event_name=self._name(found),
            search_key1=_key(found, self.key1),
            search_key2=_key(found, self.key2),
            at=self._date(found, now),
            key=self._key_of_post(found),
            **self.options,
        )

    def _name(self, found: dict[str, Any]) -> str:
        if self.event_field is None:
            return self.event or ""
        name = _required(found, self.event_field)
        if not isinstance(name, str):
            raise BadLineError(
                f"the event name, field {self.event_field!r}, is {_kind(name)}, not a string"
            )
        return name

    def _key_of_post(self, found: dict[str, Any]) -> str | None:
        if self.key is None:
            return None
        key = _required(found, self.key)
        if not isinstance(key, str):
            raise BadLineError(f"the key, field {self.key!r}, is {_kind(key)}, not a string")
        return key

    def _date(self, found: dict[str, Any], now: datetime) -> datetime | None:
        if self.delay is not None:
            return now + self.delay
        if self.at is None:
            return None
        try:
            return aware(_required(found, self.at))
        except BadLineError:
            raise
        except ValueError as error:
            raise BadLineError(f"the date, field {self.at!r}: {error}") from error


def _required(found: dict[str, Any], field: str) -> Any:
    if field not in found:
        raise BadLineError(f"there is no field {field!r}")
    return found[field]


def _key(found: dict[str, Any], field: str | None) -> int | str | None:
    key: int | str | None = found.get(field) if field is not None else None
    if key is not None and type(key) not in {int, str}:
        raise BadLineError(
            f"the search key, field {field!r}, is {_kind(key)}, neither an integer nor a string"
        )
    return key


def _kind(value: Any) -> str:
    """The kind of a value. The value itself may be part of a payload: no message shows it."""
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case dict():
            return "an object"
        case list():
            return "an array"
        case str():
            return "a string"
        case _:
            return "a number"


def batches(lines: Iterable[bytes], *, first_line: int = 1) -> Iterator[list[Line]]:
    """Lines from `first_line` on that hold anything, in batches.

    A batch has at most `BATCH_LINES` lines, and about `BATCH_BYTES` bytes.
    """
    batch: list[Line] = []
    size = 0
    for number, text in enumerate(lines, start=1):
        if number < first_line or not text.strip():
            continue
        batch.append(Line(number, text))
        size += len(text)
        if len(batch) == BATCH_LINES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch

"""From a row of a DataFrame to the columns of an entry, checked as a post is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from pyspark.sql.types import IntegerType, LongType, ShortType, StructType

from history_pipeline.errors import WriteError
from history_pipeline.rows.schema import MAIN_SCHEMA
from history_pipeline.source.options import WriteOptions
from queue_core.errors import StickybusError
from queue_core.model.names import name_fault
from queue_core.storage import arguments, search_keys
from sql.statements.staging import POSTED
from sql.tables import CLASS_NAME_LENGTH, QUEUE_NAME_LENGTH

_TOKEN_LENGTH, _CODEC_LENGTH = 36, 32
_INTEGERS = (ShortType, IntegerType, LongType)


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raises WriteError for a column that no event has, of another type, or that is missing."""
    for field in schema.fields:
        if field.name not in POSTED:
            raise WriteError(
                f"a posted event has no column {field.name!r}, only {', '.join(POSTED)}. Nothing "
                "was written."
            )
        wanted = MAIN_SCHEMA[field.name].dataType
        if field.dataType != wanted and not (
            isinstance(wanted, LongType) and isinstance(field.dataType, _INTEGERS)
        ):
            raise WriteError(
                f"the column {field.name} is of type {field.dataType.simpleString()}, not "
                f"{wanted.simpleString()}. Nothing was written; cast it."
            )
    names = set(schema.names)
    if "class_name" not in names and options.event is None:
        raise WriteError(
            "no column class_name, and no option event, names the event type. Nothing was written."
        )
    if not names & {"event_json", "event_bytes"}:
        raise WriteError(
            "there is no column event_json (or event_bytes and codec). Nothing was written."
        )


def posting(row: Mapping[str, Any], options: WriteOptions) -> dict[str, Any]:
    """All columns of `POSTED` for a row. Raises WriteError if it can't be posted."""
    given: dict[str, Any] = {name: row.get(name) for name in POSTED}
    given["queue_name"] = given["queue_name"] or options.queue
    given["class_name"] = given["class_name"] or options.event
    given["codec"] = given["codec"] or "json"
    try:
        for key, check in _CHECKS.items():
            check(given[key], key)
        search_keys.search_key(given["search_key1"], "search_key1", given["queue_name"])
        search_keys.search_key(given["search_key2"], "search_key2", given["queue_name"])
        _check_payload(given, options.max_payload_bytes)
    except (StickybusError, msgspec.MsgspecError) as error:
        raise WriteError(
            f"a row of {given['class_name']} can't be posted: {error}. Nothing is posted."
        ) from error
    return given


def _named(limit: int) -> Callable[[Any, str], None]:
    def check(value: Any, key: str) -> None:
        arguments.storable_name(value, key, limit=limit)

    return check


def _token(value: Any, key: str) -> None:
    fault = name_fault(value, _TOKEN_LENGTH) if value else None
    if fault is not None:
        raise WriteError(f"{key} is not allowed: {fault}")


def _headers(value: Any, _key: str) -> None:
    if value is not None:
        msgspec.json.decode(value, type=dict[str, str])


_CHECKS: dict[str, Callable[[Any, str], None]] = {
    "queue_name": _named(QUEUE_NAME_LENGTH),
    "class_name": _named(CLASS_NAME_LENGTH),
    "codec": _named(_CODEC_LENGTH),
    "user_token": _token,
    "future_user_token": _token,
    "headers": _headers,
}


def _check_payload(given: Mapping[str, Any], most: int) -> None:
    text, data = given["event_json"], given["event_bytes"]
    if (text is None) == (data is None):
        raise WriteError("exactly one of event_json and event_bytes must be given")
    size = len(data) if text is None else len(text.encode())
    if size > most:
        raise WriteError(
            f"its payload is {size:,} bytes, the cap is {most:,} (option max_payload_bytes)"
        )
    if given["codec"] == "json":
        # Else its handler would be the first to find out.
        msgspec.json.decode(text if text is not None else data)

"""A history of every kind of entry, with fixed ids, dates and texts, written as rows by SQL.

Two nodes on two days: `node-a` lives, `node-b` dies on the second. What each kind looks like is
what the engine writes; `test_sample.py` holds it to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import URL, insert

from sql.database import Database
from sql.tables import entry_tables

TABLE = "bus_events_history"
START = datetime(2026, 3, 1, 23, 59, 58, 250_001, tzinfo=UTC)
"""When the first entry was posted: two seconds before midnight."""
BIG = "ß" * 300_000
"""A payload of more than half a megabyte."""

_NULLS = dict.fromkeys(
    (
        "event_bytes",
        "user_token",
        "future_user_token",
        "search_key1",
        "search_key2",
        "subscribers_done",
        "headers",
    )
)


def ended(record_id: int, state: str = "PROCESSED", **changes: Any) -> dict[str, Any]:
    """A row of history, posted half a second after the one before.

    It started 10 ms later and ran for `record_id` ms.
    """
    created = START + timedelta(seconds=record_id / 2)
    started = created + timedelta(milliseconds=10)
    return {
        **_NULLS,
        "record_id": record_id,
        "queue_name": "bus",
        "class_name": "Order",
        "event_json": f'{{"number":{record_id}}}',
        "codec": "json",
        "created_date": created,
        "effective_date": created,
        "creating_owner": "node-a",
        "processing_owner": "node-a",
        "processing_available_date": created + timedelta(minutes=5),
        "lane": "node-a",
        "processing_state": state,
        "error_count": 0,
        "claim_count": 1,
        "redispatch_count": 0,
        "crash_count": 0,
        "origin_id": None,
        "replay_of": None,
        "finished_date": started + timedelta(milliseconds=record_id),
        "started_date": started,
        "last_error": None,
    } | changes


def _failed(record_id: int, **changes: Any) -> dict[str, Any]:
    error = 'ValueError: "größer" als, 10 €\nTraceback:\r\n  File "x.py"\\N, \\. 🚚'
    ended_so = {
        "error_count": 4,
        "claim_count": 4,
        "last_error": error,
        "subscribers_done": '{"orders":false}',
    }
    return ended(record_id, "FAILED", **ended_so | changes)


def _reaped(record_id: int, **changes: Any) -> dict[str, Any]:
    """It ran, or was due, when its node died.

    `finished_date` is when that was found out, and no start is known.
    """
    dead = {
        "creating_owner": "node-b",
        "processing_owner": "node-b",
        "lane": "node-b",
        "started_date": None,
    }
    return ended(record_id, "REAPED", **dead | changes)


def _heir(
    record_id: int, of: int, *, redispatches: int = 1, crashes: int = 1, state: str = "PROCESSED"
) -> dict[str, Any]:
    """The copy of a reaped entry: posted when that was, by the dead node, run by the other."""
    posted = ended(of)
    chain = {name: posted[name] for name in ("created_date", "effective_date", "event_json")}
    chain |= {
        "creating_owner": "node-b",
        "origin_id": of,
        "redispatch_count": redispatches,
        "crash_count": crashes,
    }
    return _failed(record_id, **chain) if state == "FAILED" else ended(record_id, state, **chain)


def sample_history() -> list[dict[str, Any]]:
    """38 rows, ids 1 to 40 but for 12 and 13, of 34 chains."""
    texts = ("", "a,b;c\t'd' \"e\"", "Zeile\r\nzwei\\n", "日本語 🚚 é", "\\N", "NULL")
    return [
        *(ended(number) for number in range(1, 12)),
        # Retried, and in the end processed.
        *(
            ended(number, error_count=number - 13, claim_count=number - 12)
            for number in (14, 15, 16)
        ),
        _failed(17),
        _failed(
            18,
            class_name="Ümlaut",
            queue_name="billing:réminders",
            search_key1=-1,
            search_key2=2**62,
        ),
        _failed(19, started_date=None, error_count=0, last_error="unknown for too long"),
        ended(
            20,
            "REMOVED",
            claim_count=0,
            started_date=None,
            processing_owner=None,
            processing_available_date=None,
        ),
        ended(21, "REMOVED", started_date=None, search_key1=7, search_key2=8),
        ended(22, "REMOVED", started_date=None, error_count=1),
        # One redispatch; three of one chain, the last of which failed; and one that had not
        # started.
        _reaped(23),
        _heir(24, of=23),
        _reaped(25),
        _reaped(26, origin_id=25, redispatch_count=1, crash_count=1),
        _heir(27, of=25, redispatches=2, crashes=2, state="FAILED"),
        _reaped(28, processing_owner=None, processing_available_date=None, claim_count=0),
        _heir(29, of=28, crashes=0),
        # A failed entry that was tried again by hand.
        ended(30, replay_of=17),
        ended(31, codec="msgpack", event_json=None, event_bytes=bytes(range(256))),
        ended(32, codec="msgpack", event_json=None, event_bytes=b""),
        *(
            ended(33 + place, event_json=text, user_token=text[:36])
            for place, text in enumerate(texts)
        ),
        ended(
            39,
            event_json=BIG,
            headers='{"traceparent":"00-1","käse":"ja"}',
            subscribers_done='{"a":true}',
            user_token="0b5a",
            future_user_token="",
        ),
        _failed(40, error_count=2, last_error=""),
    ]


def write_rows(url: str | URL, rows: Iterable[Mapping[str, Any]], table: str = TABLE) -> None:
    """Write rows of a main or history table in one transaction."""
    database = Database(url)
    try:
        pair = entry_tables(table.removesuffix("_history"))
        target = pair.history if table.endswith("_history") else pair.main
        database.write(
            lambda connection: connection.execute(insert(target), [dict(row) for row in rows])
        )
    finally:
        database.close()

"""Calls on Spark refuse a bad argument before they touch the session."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import history_pipeline
from history_pipeline import Period, Scale
from history_pipeline.period import compared
from history_pipeline.scale import HELP
from queue_core.errors import ConfigurationError, StickybusError

NOW = datetime.now(UTC)
PLACE: dict[str, Any] = {"target": "archive"}
STORED: dict[str, Any] = {**PLACE, "database": "sqlite://"}
CALLS: dict[str, dict[str, Any]] = {
    "archive_history": STORED,
    "audit": {},
    "compact_archive": STORED,
    "expire_archive": {**STORED, "before": NOW},
    "read_archive": PLACE,
    "read_history": {"url": "sqlite://"},
    "replay_archive": {**STORED, "where": "true"},
    "verify_content": PLACE,
}
"""The calls, with arguments that they need."""
DATES = (True, "2026-03-01", NOW.replace(tzinfo=None))
NUMBERS = (True, 10**5000, -(10**5000), 2**63)
PLACES: tuple[Any, ...] = (None, True, "", "a\0b", "\ud800", 10**5000, [])
TABLES: tuple[Any, ...] = (True, "", "a\0b", "\ud800", "../other", 10**5000, [])
BAD: dict[str, dict[str, tuple[Any, ...]]] = {
    "archive_history": {
        "target": PLACES,
        "table": (*TABLES, None),
        "before": DATES,
        "without": (True, "payload", ["body"]),
        "scale": (None, 1),
        "progress": (None, True),
    },
    "audit": {
        "archive": PLACES[1:],
        "tables": (True, "orders", [None], ["work_task_history"]),
        "period": (None, (NOW, NOW), Period("x"), Period(NOW.replace(tzinfo=None))),  # type: ignore[arg-type]
        "progress": (None, True),
        "url": (True, "no url", []),
    },
    "compact_archive": {
        "target": PLACES,
        "table": (*TABLES, None),
        "scale": (None, 1),
        "progress": (None, True),
    },
    "expire_archive": {"target": PLACES, "table": (*TABLES, None), "before": (None, *DATES)},
    "read_archive": {"target": PLACES, "table": TABLES, "since": DATES, "until": DATES},
    "read_history": {
        "url": (None, True, "no url", []),
        "table": (None, True, []),
        "since": DATES[:2],
        "first_id": NUMBERS,
        "last_id": NUMBERS,
        "ids_per_partition": NUMBERS,
        "max_partitions": NUMBERS,
        "states": (True, "LOST", [10**5000]),
        "columns": (True, "record_id", ["unknown"], [0], [10**5000], [[]]),
    },
    "replay_archive": {
        "target": PLACES,
        "table": (*TABLES, None, "work_task_history"),
        "where": (None, True),
        "since": DATES,
        "progress": (None, True),
    },
    "verify_content": {"target": PLACES, "table": (*TABLES, None)},
}
"""What each argument may not be."""


class Untouched:
    """A session that nobody may ask for anything."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


@pytest.mark.parametrize(
    ("call", "key"), [(call, key) for call, keys in BAD.items() for key in keys]
)
def test_a_bad_argument_is_refused_before_the_session_is_touched(call: str, key: str) -> None:
    function: Callable[..., Any] = getattr(history_pipeline, call)
    for value in BAD[call][key]:
        with pytest.raises(StickybusError):
            function(Untouched(), **{**CALLS[call], key: value})


@pytest.mark.parametrize("size", HELP)
def test_a_size_that_spark_can_not_take_is_refused(size: str) -> None:
    values: tuple[Any, ...] = (0, "1", 1.5, *NUMBERS)
    for value in values:
        with pytest.raises(ConfigurationError, match=size):
            Scale(**{size: value})


def test_a_report_may_end_when_the_calendar_begins() -> None:
    begin = datetime.min.replace(tzinfo=UTC)
    assert compared(begin)["week_before"].since == begin

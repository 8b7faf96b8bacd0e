"""A history of any kind of rows, by a seed.

It has few names, many ties, missing dates and clocks that differ.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from tests.pipeline.sample import ended

START = datetime(2026, 2, 27, 22, 10, tzinfo=UTC)


def random_history(seed: int, rows: int) -> list[dict[str, Any]]:
    """Rows of history with ids from 1; about one in six is REAPED, REMOVED or never started."""
    random = Random(seed)  # noqa: S311 -- a seeded history
    return [_row(random, record_id) for record_id in range(1, rows + 1)]


def _row(random: Random, record_id: int) -> dict[str, Any]:
    state = random.choices(["PROCESSED", "FAILED", "REMOVED", "REAPED"], [75, 15, 4, 6])[0]
    created = START + timedelta(seconds=random.uniform(0, 20_000))
    ahead = random.choice([0.0, 0.0, 0.0, -5.0, random.uniform(0, 90_000)])
    effective = created + timedelta(seconds=ahead)
    # A clock that is behind starts an entry before it was posted.
    wait = random.choice([0.001, random.lognormvariate(-6, 3), -random.random() / 100])
    started = max(created, effective) + timedelta(seconds=wait)
    took = random.choice([0.0, 0.000_001, 0.25, random.lognormvariate(-5, 4)])
    ran = state in {"PROCESSED", "FAILED"} and random.random() > 0.03
    return ended(
        record_id,
        state,
        queue_name=random.choice(["bus", "billing:reminders"]),
        class_name=random.choice(["Order", "Ümlaut", "<script>"]),
        created_date=created,
        effective_date=effective,
        started_date=started if ran else None,
        finished_date=(started if ran else created + timedelta(seconds=1))
        + timedelta(seconds=took),
        processing_owner=random.choice(["node-a", "node-b", None]),
        lane=random.choice(["node-a", "node-b", ""]),
        error_count=random.choice([0, 0, 0, 1, 2, 7]),
        redispatch_count=random.choice([0, 0, 0, 1, 3]),
        last_error=random.choice(["ValueError: no\nmore", "TimeoutError", "", None]),
    )

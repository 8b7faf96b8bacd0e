"""Rules of recurring schedules, and their due dates."""

from datetime import UTC, datetime

from hypothesis import strategies as st

from queue_core.model.recurrence import Recurrence

START = datetime(2026, 1, 1, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def due_dates(rule: Recurrence, begin: datetime, end: datetime) -> list[datetime]:
    """All due dates in (begin, end], found one by one from each other."""
    dates = []
    date = rule.next_after(begin, begin)
    while date is not None and date <= end:
        dates.append(date)
        date = rule.next_after(date, end)
    return dates


moments = st.datetimes(
    datetime(2024, 1, 1),  # noqa: DTZ001 -- hypothesis wants naive bounds
    datetime(2028, 1, 1),  # noqa: DTZ001
).map(lambda d: d.replace(tzinfo=UTC))
crons = st.sampled_from(
    [
        "30 2 * * *",
        "*/20 2,3 * * *",
        "0 1,2 * * *",
        "17 * * * *",
        "0 0 * * 1-5",
        "15,30 2 * * sun",
        "0 4 1 * *",
    ]
)

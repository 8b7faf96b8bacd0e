"""Rules of recurring schedules that can not work are refused."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from queue_core.errors import InvalidPostError, NaiveDateTimeError
from queue_core.model.recurrence import parse
from tests.unit.rules import START


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "* * * * * *",
        "61 * * * *",
        "x * * * *",
        "* * * * 8",
        "* * * * mon#2",
        "* * * * 1/0",
        "@often",
        "0 0 30 2 *",
    ],
)
def test_a_cron_line_that_can_not_work_is_refused(cron: str) -> None:
    with pytest.raises(InvalidPostError, match="Nothing was scheduled") as caught:
        parse(cron=cron, start=START)
    assert (caught.value.key, caught.value.value) == ("cron", cron)


@pytest.mark.parametrize(
    "every",
    [
        *(
            0,
            -1,
            0.009,
            1e20,
            float("nan"),
            float("inf"),
            timedelta(),
            "5",
            b"5",
            "",
            True,
            10**400,
            [],
            object,
            int,
        ),
    ],
)
def test_an_interval_that_can_not_work_is_refused(every: Any) -> None:
    with pytest.raises(InvalidPostError, match=r"0\.01 s to a century"):
        parse(every_seconds=every, start=START)


@pytest.mark.parametrize(
    "timezone",
    [
        "Mars/Olympus",
        "../UTC",
        "America",
        "",
        "Europe/Berlin\0",
        "x" * 100_000,
        "\ud800",
        None,
        5,
        b"UTC",
        object(),
    ],
)
@pytest.mark.parametrize("rule", [{"cron": "@daily"}, {"every_seconds": 5}], ids=["cron", "every"])
def test_an_unknown_time_zone_is_refused(timezone: Any, rule: dict[str, Any]) -> None:
    with pytest.raises(InvalidPostError, match="timezone="):
        parse(**rule, timezone=timezone, start=START)


@pytest.mark.parametrize("missed", ["SKIP", None, True, 5, object()])
def test_what_is_no_policy_for_missed_dates_is_refused(missed: Any) -> None:
    with pytest.raises(InvalidPostError, match=r"missed=.*MissedPolicy\.FIRE_ONCE"):
        parse(every_seconds=5, missed=missed, start=START)


@pytest.mark.parametrize("cron", [5, b"@daily", [], datetime.now, True])
def test_a_cron_line_that_is_no_text_is_refused(cron: Any) -> None:
    with pytest.raises(InvalidPostError, match=r"cron=.*five fields"):
        parse(cron=cron, start=START)


def test_a_schedule_has_one_rule_and_an_aware_start() -> None:
    with pytest.raises(InvalidPostError, match=r"cron=….* or every=….*neither"):
        parse(start=START)
    with pytest.raises(InvalidPostError, match=r"cron=….* or every=….*both"):
        parse(cron="@daily", every_seconds=5, start=START)
    with pytest.raises(NaiveDateTimeError):
        parse(cron="@daily", start=datetime(2026, 1, 1))  # noqa: DTZ001 -- the naive one is the case

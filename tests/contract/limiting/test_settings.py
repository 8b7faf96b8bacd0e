"""Limits of queues are set, told and refused."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import URL

import stickybus
from stickybus import InvalidPostError, Limit
from tests.contract.conftest import MakeBus


def test_a_limit_is_told_as_it_was_set(make_bus: MakeBus, database_url: URL) -> None:
    bus = make_bus()

    first = bus.limit(concurrency=5)
    assert first.limited_by != ""
    made = bus.limit(per_node=2, rate=100, per=timedelta(minutes=1), burst=10, by="ann")

    assert bus.limits() == [made]
    assert made == Limit(
        table="bus_events",
        queue_name="bus",
        per_node=2,
        rate=100,
        per=timedelta(minutes=1),
        burst=10,
        limited_by="ann",
        since=made.since,
    )
    with stickybus.inspect(database_url) as inspector:
        assert inspector.limits() == [made]
        assert inspector.limits(table="notifications") == []


def test_a_number_as_the_time_of_a_rate_is_in_seconds(make_bus: MakeBus) -> None:
    assert make_bus().limit(rate=100, per=60).per == timedelta(minutes=1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"burst": 3},
        {"concurrency": 0},
        {"concurrency": True},
        {"per_node": 2**31},
        {"rate": 1.5},
        {"rate": 1, "per": timedelta()},
        {"rate": 1, "per": True},
        {"rate": 1, "per": -1e300},
        {"rate": 1, "per": "60"},
        {"rate": 1, "burst": 0},
        {"concurrency": 1, "burst": 5},
        {"rate_per_key": 1, "burst": 5},
        {"rate": 1, "burst_per_key": 5},
        {"concurrency": 1, "per": timedelta(seconds=5)},
        {"concurrency": 1, "by": "x" * 256},
    ],
)
def test_a_limit_that_means_nothing_is_refused(make_bus: MakeBus, options: Any) -> None:
    bus = make_bus()
    with pytest.raises(InvalidPostError, match="Nothing was written"):
        bus.limit(**options)
    assert bus.limits() == []


def test_a_refused_limit_names_the_argument_and_its_value(make_bus: MakeBus) -> None:
    with pytest.raises(InvalidPostError) as caught:
        make_bus().limit(rate=0)
    assert (caught.value.key, caught.value.value) == ("rate", "0")


def test_an_option_of_a_rate_that_is_not_given_is_refused(make_bus: MakeBus) -> None:
    with pytest.raises(InvalidPostError, match=r"bus: burst=5 needs rate=\. Nothing") as caught:
        make_bus().limit(concurrency=1, burst=5)
    assert (caught.value.key, caught.value.value) == ("burst", "5")


def test_the_awaitable_twins_do_the_same(make_bus: MakeBus) -> None:
    bus = make_bus()

    async def main() -> None:
        made = await bus.limit_async(concurrency=1)
        assert await bus.limits_async() == [made]
        assert await bus.unlimit_async()
        assert bus.limits() == []

    asyncio.run(main())

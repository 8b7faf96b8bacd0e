"""When callers' transactions end quickly enough to be looked for together."""

from __future__ import annotations

import pytest

from queue_core.posting.commit_rate import GATHER_SECONDS, MANY, MANY_SECONDS, CommitRate


def counted(gaps: list[float]) -> tuple[CommitRate, float]:
    """A rate, and the time of the last of the transactions that lie `gaps` apart."""
    rate, now = CommitRate(), 100.0
    rate.count(now)
    for gap in gaps:
        now += gap
        rate.count(now)
    return rate, now


def test_before_the_first_transaction_the_rate_is_low() -> None:
    assert not CommitRate().is_high(100.0)


def test_fewer_than_many_are_no_rate_yet() -> None:
    rate, now = counted([0.0] * (MANY - 2))
    assert not rate.is_high(now)
    rate.count(now)
    assert rate.is_high(now)


@pytest.mark.parametrize(("a_second", "high"), [(500, False), (700, True), (10_000, True)])
def test_the_rate_is_high_from_600_a_second_on(a_second: int, *, high: bool) -> None:
    rate, now = counted([1 / a_second] * 50)
    assert rate.is_high(now) is high


def test_only_the_latest_count() -> None:
    slowly = 1.1 * MANY_SECONDS / (MANY - 1)
    rate, now = counted([0.0] * MANY + [slowly] * (MANY - 1))
    assert not rate.is_high(now)


def test_after_a_pause_nothing_waits_for_others() -> None:
    rate, now = counted([0.0001] * 50)
    assert rate.is_high(now + GATHER_SECONDS * 0.9)
    assert not rate.is_high(now + GATHER_SECONDS)

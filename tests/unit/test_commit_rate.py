"""When callers' transactions end quickly enough to be looked for together."""

from __future__ import annotations

import pytest

from queue_core.posting.commit_rate import (
    GATHER_SECONDS,
    MANY,
    MANY_SECONDS,
    VAIN_PAUSES,
    VAIN_SECONDS,
    CommitRate,
)


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


def after_pauses(found: list[int]) -> tuple[CommitRate, float]:
    """A rate after this number of transactions in each pause, and when the last pause began."""
    rate, now = counted([0.0] * MANY)
    for several in found:
        now += GATHER_SECONDS
        for _ in range(several):
            rate.count(now)
        rate.gathered(now)
    return rate, now


def quickly_again(rate: CommitRate, now: float) -> bool:
    """Whether the rate is high after many more transactions at once."""
    for _ in range(MANY):
        rate.count(now)
    return rate.is_high(now)


@pytest.mark.parametrize("alone", [0, 1])
def test_after_some_pauses_in_vain_there_is_none_for_a_while(alone: int) -> None:
    rate, now = after_pauses([2, *[alone] * VAIN_PAUSES])
    assert not quickly_again(rate, now + 0.99 * VAIN_SECONDS)
    assert quickly_again(rate, now + 1.01 * VAIN_SECONDS)


@pytest.mark.parametrize("found", [[1] * (VAIN_PAUSES - 1), [1, 1, 2, 1, 1], [2] * 10])
def test_pauses_that_gather_several_go_on(found: list[int]) -> None:
    rate, now = after_pauses(found)
    assert quickly_again(rate, now)

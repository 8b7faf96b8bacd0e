"""When claims on MariaDB and MySQL set stoppers, by how long they read and write."""

from __future__ import annotations

import pytest

from sql.mysql.stoppers import FAR, IN_A_ROW, PAUSE, Walks

READ, WRITE = 0.25 * FAR, 0.25
"""Seconds of a claim that just walked far; exact as floats."""


class Clock:
    """Monotonic seconds."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def walks(clock: Clock) -> Walks:
    return Walks(clock)


def take(walks: Walks, claims: int, read_seconds: float = READ) -> bool:
    """Claims that read for this long; whether the next one sets a stopper."""
    for _ in range(claims):
        walks.took(read_seconds, WRITE)
    return walks.are_far


def test_claims_set_stoppers_once_some_in_a_row_have_read_for_long(walks: Walks) -> None:
    assert not take(walks, IN_A_ROW - 1)
    assert take(walks, 1)


def test_one_claim_that_did_not_begins_the_row_anew(walks: Walks) -> None:
    assert not take(walks, IN_A_ROW - 1)
    assert not take(walks, 1, READ - 0.25)
    assert not take(walks, IN_A_ROW - 1)
    assert take(walks, 1)


def test_after_a_pause_one_claim_finds_out_whether_it_is_still_so(
    walks: Walks, clock: Clock
) -> None:
    take(walks, IN_A_ROW - 1, 2 * READ)
    take(walks, 1)
    clock.seconds += PAUSE * READ - 1
    assert take(walks, 0)

    clock.seconds += 1
    assert not take(walks, 0)
    assert take(walks, 1)  # the rows are still there

    clock.seconds += PAUSE * READ
    assert not take(walks, 1, 0.0)  # they are gone
    assert not take(walks, IN_A_ROW - 1)

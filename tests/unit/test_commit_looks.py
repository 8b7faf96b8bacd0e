"""When a node looks for what callers' transactions have posted."""

from __future__ import annotations

import pytest

from queue_core.claiming.commit_looks import FIRST_LOOK_SECONDS, LOOKS, CommitLooks


@pytest.fixture
def looks() -> CommitLooks:
    return CommitLooks(3.0)


def test_without_an_announcement_a_poll_interval_lies_between_looks(looks: CommitLooks) -> None:
    assert looks.begin(10.0)
    looks.end(10.0, found=False, more=False)
    assert looks.next_look == 13.0
    assert not looks.begin(12.9)
    assert looks.begin(13.0)


def test_after_an_announcement_looks_come_ever_more_rarely(looks: CommitLooks) -> None:
    looks.announce()
    pauses, now = list[float](), 10.0
    for _ in range(LOOKS + 1):
        assert looks.begin(now)
        looks.end(now, found=False, more=False)
        pauses.append(looks.next_look - now)
        now = looks.next_look
    assert pauses[:3] == pytest.approx([FIRST_LOOK_SECONDS * 2**place for place in range(3)])
    assert pauses[-1] == pytest.approx(3.0)


def test_an_announcement_during_a_look_asks_for_another_at_once(looks: CommitLooks) -> None:
    assert looks.begin(10.0)
    looks.announce()
    looks.end(10.0, found=False, more=False)
    assert looks.begin(10.0)


def test_after_an_announcement_during_a_look_looks_come_as_after_any(looks: CommitLooks) -> None:
    looks.announce()
    now, left = 10.0, LOOKS // 2
    for _ in range(left):
        assert looks.begin(now)
        looks.end(now, found=False, more=False)
        now = looks.next_look
    assert looks.begin(now)
    looks.announce()  # and it commits a little later
    looks.end(now, found=False, more=False)
    assert looks.begin(now)
    looks.end(now, found=False, more=False)
    assert looks.next_look - now == pytest.approx(FIRST_LOOK_SECONDS)


def test_what_is_there_already_is_looked_for_once_at_once(looks: CommitLooks) -> None:
    assert looks.begin(10.0)
    looks.look_now()
    looks.end(10.0, found=False, more=False)
    assert looks.begin(10.0)
    looks.end(10.0, found=True, more=False)
    assert looks.next_look == 13.0


def test_a_look_that_fails_is_followed_by_another(looks: CommitLooks) -> None:
    assert looks.begin(10.0)  # and the database is away: no end
    assert not looks.begin(12.0)
    assert looks.begin(13.0)

"""What a node knows of its lanes: each rule of `Outlook` without a database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from queue_core.claiming.outlook import (
    AFTER_DATE_SECONDS,
    AHEAD,
    LATE,
    LONGEST_LOOK_SECONDS,
    LOOK_SECONDS,
    LOOK_SHARE,
    SHORTEST_POLL_SECONDS,
    Outlook,
)
from queue_core.model.lanes import ANY_NODE, PARKED, SUSPECT, Lane
from queue_core.runtime.manual_clock import ManualClock
from queue_core.storage.store import FIRST_DATE

OWN, POLL = Lane("a"), 5.0
START = datetime(2026, 1, 1, tzinfo=UTC)


def outlook(*, adapts: bool = False) -> tuple[Outlook, ManualClock]:
    clock = ManualClock(START)
    return Outlook(clock, POLL, adapts=adapts), clock


def look(subject: Outlook, **due: datetime) -> None:
    subject.look_begins()
    subject.look_found({Lane(lane): date for lane, date in due.items()}, {})


def due(subject: Outlook) -> bool:
    return subject.look_is_due


def left(subject: Outlook) -> float:
    return round(subject.seconds_left([]), 6)


def test_a_look_that_finds_nothing_is_followed_by_the_next_after_a_poll_interval() -> None:
    subject, clock = outlook()
    assert due(subject)
    look(subject)
    assert not due(subject)
    assert left(subject) == POLL
    clock.advance(seconds=POLL)
    assert due(subject)


def test_a_look_that_failed_is_due_again() -> None:
    subject, _ = outlook()
    subject.look_begins()
    subject.look_failed()
    assert due(subject)


def test_what_was_committed_before_a_look_began_wakes_nobody() -> None:
    subject, clock = outlook()
    committed = clock.monotonic()
    clock.advance(seconds=1)
    look(subject)
    assert not subject.wake(committed)
    assert not due(subject)
    assert subject.wake()
    assert due(subject)


class _Interval(float):
    """A poll interval in whose addition another thread has its turn."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def __radd__(self, other: float) -> float:
        self.meanwhile()
        return other + float(self)


def test_what_is_asked_for_while_the_time_of_the_next_look_is_computed_is_not_forgotten() -> None:
    interval = _Interval(POLL)
    subject = Outlook(ManualClock(START), interval, adapts=True)
    look(subject)
    subject.look_begins()
    interval.meanwhile = subject.wake
    subject.look_found({}, {})
    assert due(subject)


def test_what_a_look_has_found_while_a_claim_was_written_is_claimed_next() -> None:
    subject, _ = outlook()
    look(subject, a=START)
    looks = subject.looks
    look(subject, a=START)
    subject.emptied(OWN, looks)
    assert subject.lanes_with_due == {OWN}
    subject.emptied(OWN, subject.looks)
    assert not subject.lanes_with_due


def test_beside_a_backlog_a_look_is_asked_for_in_vain_until_the_pause_is_over() -> None:
    subject, clock = outlook()
    look(subject, a=START)
    subject.wake()
    assert left(subject) == LOOK_SECONDS
    subject.goes_on()
    clock.advance(seconds=LOOK_SECONDS)
    assert due(subject)


def test_while_a_backlog_lasts_other_lanes_are_looked_at_once_a_second() -> None:
    subject, _ = outlook()
    look(subject, a=START)
    subject.goes_on()
    assert left(subject) == LONGEST_LOOK_SECONDS
    subject.emptied(OWN, subject.looks)
    subject.goes_on()
    assert not subject.lanes_with_due


def test_a_slow_look_is_repeated_after_a_multiple_of_its_duration_but_within_a_second() -> None:
    for took, pause in ((0.02, LOOK_SHARE * 0.02), (0.5, LONGEST_LOOK_SECONDS)):
        subject, clock = outlook()
        subject.look_begins()
        clock.advance(seconds=took)
        subject.look_found({OWN: START}, {})
        subject.request_look()
        subject.goes_on()
        assert left(subject) == round(pause - took, 6)


def test_the_earliest_date_that_is_known_of_a_lane_counts() -> None:
    subject, _ = outlook()
    look(subject)
    assert subject.expect(OWN, START + timedelta(seconds=3))
    assert not subject.expect(OWN, START + timedelta(seconds=4))
    assert subject.expect(OWN, START + timedelta(seconds=2))
    assert left(subject) == round(2 - AHEAD.total_seconds(), 6)


def test_a_date_that_has_come_nearly_makes_its_lane_due_and_a_look_follows_it() -> None:
    subject, clock = outlook()
    look(subject)
    subject.expect(OWN, START + timedelta(seconds=1))
    clock.advance(seconds=1 - AHEAD.total_seconds())
    subject.notice_due()
    assert subject.lanes_with_due == {OWN}
    assert left(subject) == round(AHEAD.total_seconds() + AFTER_DATE_SECONDS, 6)


def test_a_hint_makes_a_lane_due_and_a_look_follows_it_soon() -> None:
    subject, _ = outlook()
    look(subject)
    subject.hint(ANY_NODE)
    subject.notice_due()
    assert subject.lanes_with_due == {ANY_NODE}
    assert left(subject) == LOOK_SECONDS


def test_parked_entries_are_told_of_and_not_claimed() -> None:
    subject, _ = outlook()
    look(subject, **{PARKED: START})
    assert subject.finds_parked
    assert not subject.lanes_with_due


def test_a_claim_seeks_from_where_the_last_one_ended_or_a_second_earlier_if_that_was_not_full() -> (
    None
):
    subject, _ = outlook()
    assert subject.since(OWN) == FIRST_DATE
    subject.claimed(OWN, START, whole=True)
    assert subject.since(OWN) == START
    subject.claimed(OWN, START, whole=False)
    assert subject.since(OWN) == START - LATE
    subject.claimed(OWN, FIRST_DATE, whole=False)
    assert subject.since(OWN) == FIRST_DATE
    look(subject, a=START - timedelta(days=1))
    assert subject.since(OWN) == START - timedelta(days=1)
    subject.claimed(SUSPECT, START, whole=True)
    assert subject.since(SUSPECT) == FIRST_DATE


def test_without_hints_polls_quicken_while_they_find_something_and_slow_down_by_two() -> None:
    subject, clock = outlook(adapts=True)
    look(subject, **{ANY_NODE: START})
    subject.emptied(ANY_NODE, subject.looks)
    assert left(subject) == SHORTEST_POLL_SECONDS
    for seconds in (0.01, 0.02, 0.04):
        clock.advance(seconds=1)
        look(subject)
        assert left(subject) == seconds


def test_what_was_claimed_ahead_is_waited_for() -> None:
    subject, _ = outlook()
    look(subject)
    assert round(subject.seconds_left([START + timedelta(milliseconds=3)]), 6) == 0.003


LANES = st.sampled_from([OWN, ANY_NODE, SUSPECT])
DATES = st.integers(-3, 30).map(lambda seconds: START + timedelta(seconds=seconds))
STEPS = st.one_of(
    st.tuples(st.just("wake")),
    st.tuples(st.just("request_look")),
    st.tuples(st.just("hint"), LANES),
    st.tuples(st.just("expect"), LANES, DATES),
    st.tuples(st.just("advance"), st.floats(0, 3)),
    st.tuples(st.just("turn"), st.dictionaries(LANES, DATES, max_size=3), st.sets(LANES)),
)


@given(st.lists(STEPS, max_size=40))
def test_whatever_is_told_no_lane_that_is_due_is_forgotten_and_looks_go_on(
    steps: list[tuple[object, ...]],
) -> None:
    subject, clock = outlook()
    wanted = set[Lane]()
    for name, *given_ in steps:
        match name:
            case "advance":
                clock.advance(seconds=given_[0])  # type: ignore[arg-type]
            case "turn":
                if due(subject):
                    subject.look_begins()
                    subject.look_found(given_[0], {})  # type: ignore[arg-type]
                    wanted |= given_[0].keys()  # type: ignore[attr-defined]
                subject.notice_due()
                assert subject.lanes_with_due >= wanted
                for lane in given_[1]:  # type: ignore[attr-defined]
                    subject.emptied(lane, subject.looks)
                wanted = set(subject.lanes_with_due)
                subject.goes_on()
                assert left(subject) <= (LONGEST_LOOK_SECONDS if wanted else POLL)
            case _:
                getattr(subject, str(name))(*given_)
                if name == "hint":
                    wanted.add(Lane(str(given_[0])))


def test_looks_are_often_from_one_that_finds_entries_until_some_have_found_none() -> None:
    subject, clock = outlook(adapts=True)
    look(subject)
    assert not subject.looks_often
    looks = [{ANY_NODE: START}, {}, {}, {}]
    often = []
    for found in looks:
        subject.look_begins()
        subject.look_found(found, {})
        often.append(subject.looks_often)
        clock.advance(seconds=left(subject))
    assert often == [True, True, True, False]


def test_where_each_commit_brings_a_hint_looks_are_never_often() -> None:
    subject, _ = outlook()
    subject.look_begins()
    subject.look_found({ANY_NODE: START}, {})
    assert not subject.looks_often

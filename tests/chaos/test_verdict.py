"""The judge's evidence and the measures, from journals written by hand."""

from __future__ import annotations

from collections.abc import Sequence

from tests.chaos.journal import Answered, Beaten, Ended, Line, Posting, Started, Stopping
from tests.chaos.linked import CONCURRENCY, KEYS, Link, violations
from tests.chaos.load import Kind
from tests.chaos.stage import Death
from tests.chaos.verdict import _leases_ended, _posted, _recovery, _reruns, _runs
from tests.checker import LeaseEnded, Ran, Violation

LEASE = 2.0
STEP = LEASE / 8


def beats(node: str, pid: int, *, epoch: int, since: float, until: float) -> list[Line]:
    count = round((until - since) / STEP)
    return [
        Beaten(at=since + STEP * number, node=node, pid=pid, epoch=epoch, in_flight=0)
        for number in range(count + 1)
    ]


def posting(*keys: int, undone: Sequence[int] = ()) -> Posting:
    return Posting(at=1.0, node="a", keys=list(keys), undone=list(undone), kind=Kind.QUICK)


def started(key: int, at: float, *, pid: int) -> Started:
    return Started(
        at=at,
        node=f"n{pid}",
        pid=pid,
        epoch=1,
        key=key,
        record_id=key,
        origin_id=None,
        claim_count=pid,
        error_count=0,
    )


def test_a_post_without_an_answer_is_unknown_and_what_was_undone_is_rolled_back() -> None:
    answered = Answered(at=2.0, keys=[1, 2], committed=True, sticky=True)

    found = list(_posted([posting(1, 2), answered, posting(3, undone=[4])]))

    assert [(post.key, post.committed, post.sticky) for post in found] == [
        (1, True, True),
        (2, True, True),
        (3, None, False),
        (4, False, False),
    ]


def test_a_run_without_an_end_is_one_that_was_cut_off() -> None:
    lines: list[Line] = [
        started(1, 5.0, pid=7),
        started(2, 5.0, pid=7),
        Ended(at=6.0, record_id=2, claim_count=7, failed=True),
    ]

    assert [(pid, run.key, run.ended, run.failed) for pid, run in _runs(lines)] == [
        (7, 1, None, False),
        (7, 2, 6.0, True),
    ]


def test_the_lease_of_a_killed_node_ends_with_its_process() -> None:
    lines = beats("a", 1, epoch=5, since=0.0, until=10.0)

    assert list(_leases_ended([lines], [Death("a", 1, 10.5)], LEASE)) == [
        LeaseEnded(node="a", incarnation=5, at=10.5)
    ]


def test_the_lease_of_a_node_that_stops_ends_when_it_begins_to() -> None:
    lines = [*beats("a", 1, epoch=5, since=0.0, until=10.0), Stopping(at=10.1, node="a")]

    assert list(_leases_ended([lines], [Death("a", 1, 11.0)], LEASE)) == [
        LeaseEnded(node="a", incarnation=5, at=10.1)
    ]


def test_the_lease_of_a_frozen_node_ends_once_another_has_watched_it_for_a_lease() -> None:
    frozen = beats("a", 1, epoch=5, since=0.0, until=10.0) + beats(
        "a", 1, epoch=6, since=20.0, until=21.0
    )
    witness = beats("b", 2, epoch=5, since=0.0, until=21.0)

    assert list(_leases_ended([frozen, witness], [], LEASE)) == [
        LeaseEnded(node="a", incarnation=5, at=10.0 + LEASE)
    ]


def test_a_node_declared_dead_after_an_outage_by_one_who_was_blind_too_is_a_mistake() -> None:
    reaped = beats("a", 1, epoch=5, since=0.0, until=10.0) + beats(
        "a", 1, epoch=6, since=16.5, until=18.0
    )
    blind = beats("b", 2, epoch=5, since=0.0, until=10.0) + beats(
        "b", 2, epoch=5, since=15.5, until=18.0
    )

    first, second = _leases_ended([reaped, blind], [], LEASE)

    assert isinstance(first, Violation)
    assert "watched" in first.explanation
    assert second == LeaseEnded(node="a", incarnation=5, at=12.0)


def test_an_epoch_that_goes_on_after_an_outage_never_ended() -> None:
    lines = beats("a", 1, epoch=5, since=0.0, until=10.0) + beats(
        "a", 1, epoch=5, since=15.0, until=18.0
    )

    assert not list(_leases_ended([lines], [], LEASE))


def test_a_rerun_is_timed_from_the_death_of_the_process_that_it_was_cut_off_in() -> None:
    pairs = list(_runs([started(1, 5.0, pid=7), started(1, 8.5, pid=8), started(2, 5.0, pid=7)]))

    assert list(_reruns(pairs, [Death("n7", 7, 6.0)], {1: Kind.SLOW, 2: Kind.SLOW})) == [2.5]
    assert not list(_reruns(pairs, [Death("n7", 7, 6.0)], {1: Kind.POISON, 2: Kind.SLOW}))


def test_the_full_rate_is_back_when_a_second_has_four_fifths_of_it() -> None:
    handled = [number / 10 for number in range(100)] + [12.0 + number / 10 for number in range(50)]

    recovered = _recovery(handled, 10.0, rate_before=10.0)

    assert recovered is not None
    assert 1.5 < recovered < 2.5
    assert _recovery(handled, 10.0, rate_before=100.0) is None


def ran(key: int, started: float, ended: float | None) -> Ran:
    return Ran(
        key=key,
        record_id=key,
        claim_count=1,
        node="a",
        incarnation=1,
        started=started,
        ended=ended,
    )


def told(link: Link, lines: Sequence[Line], *runs: Ran, leases: Sequence[LeaseEnded] = ()) -> int:
    return len(list(violations(link, [lines], runs, leases, 0.0)))


def answered(key: int, at: float, *, added: bool = True) -> list[Line]:
    began = Posting(at=at - 0.5, node="a", keys=[key], undone=[], kind=Kind.QUICK)
    not_added = [] if added else [key]
    return [
        began,
        Answered(at=at, keys=[key], committed=True, sticky=False, not_added=not_added),
    ]


def test_two_entries_of_an_order_key_run_one_after_the_other() -> None:
    other, lines = 1 + KEYS, [*answered(1, 1.0), *answered(1 + KEYS, 2.0)]

    assert told(Link.ORDER, lines, ran(1, 3.0, 4.0), ran(other, 4.0, 5.0)) == 0
    assert told(Link.ORDER, lines, ran(1, 3.0, 4.0), ran(2, 3.5, 5.0)) == 0
    assert told(Link.ORDER, lines, ran(other, 3.0, 4.0), ran(1, 4.0, 5.0)) == 1  # out of order
    assert told(Link.ORDER, lines, ran(1, 3.0, 4.0), ran(other, 3.5, 5.0)) == 2  # and beside it


def test_who_was_cut_off_is_beside_nobody_once_its_lease_has_ended() -> None:
    runs = [ran(1, 3.0, None), ran(1 + KEYS, 5.0, 6.0)]

    assert told(Link.ORDER, [], *runs) == 1
    assert told(Link.ORDER, [], *runs, leases=[LeaseEnded(node="a", incarnation=1, at=4.0)]) == 0


def test_an_entry_is_not_added_while_another_one_has_its_key() -> None:
    first, again = answered(1, 1.0), answered(1 + KEYS, 3.0)

    assert told(Link.KEY, [*first, *again], ran(1, 1.0, 2.0)) == 0
    assert told(Link.KEY, [*first, *again], ran(1, 1.0, 4.0)) == 1
    assert told(Link.KEY, [*first, *answered(1 + KEYS, 3.0, added=False)], ran(1, 1.0, 4.0)) == 0


def test_no_more_run_at_once_than_the_limit_says() -> None:
    runs = [ran(number, 1.0 + number / 10, 9.0) for number in range(CONCURRENCY)]

    assert told(Link.LIMIT, [], *runs) == 0
    assert told(Link.LIMIT, [], *runs, ran(99, 5.0, 6.0)) == 1

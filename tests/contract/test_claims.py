"""When a node looks what is due, and when it claims without a look, or ahead of its date."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import URL, create_engine

from queue_core.claiming.outlook import (
    AFTER_DATE_SECONDS,
    AHEAD,
    LONGEST_LOOK_SECONDS,
    LOOK_SECONDS,
    LOOK_SHARE,
)
from queue_core.holding.pace import GROWTH, LULL_SECONDS, WINDOW_SECONDS
from queue_core.model.lanes import ANY_NODE, Lane
from queue_core.model.outcome import Finished
from queue_core.storage.places import Claimed
from stickybus import Mode, NotificationConfig, NotificationService, Posting, State
from tests import requirements as needs
from tests.contract.claim_turns import node_and_poster, turn
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order


def test_what_others_tell_of_is_claimed_without_a_look(cluster: Cluster) -> None:
    node, poster = node_and_poster(cluster)
    poster.bus.post(Order(1))
    assert turn(node) == ([], 0)

    node.lifecycle.claimer.hint(ANY_NODE)

    assert turn(node) == ([1], 0)


def test_an_entry_that_was_claimed_or_looked_up_is_as_it_stands_in_the_table(
    cluster: Cluster,
) -> None:
    node, poster = cluster.join("a", mode=Mode.POLLING), cluster.peer("b", mode=Mode.POLLING)
    odd = "\x01\t\x7f \"\\/' \u00e4\u2028\ufeff\U0001f600 %s :x"
    posting = Posting(
        event={"text": odd},
        event_name=odd.strip(),
        search_key1=odd,
        search_key2=-(2**63),
        user_token=odd,
        headers={odd: odd},
    )
    poster.bus.post_many([posting, Posting(event=Order(1), search_key1=2**63 - 1)])
    holdings = node.lifecycle.holdings

    claimed = holdings.moves.claim(ANY_NODE, holdings.name, 10).entries

    assert claimed == node.bus.find()
    assert [entry.user_token for entry in claimed] == [odd, None]
    for entry in claimed:
        assert list(node.store.owned([entry.record_id], holdings.name)) == [entry]


def test_a_hint_without_anything_to_claim_is_followed_by_a_look(cluster: Cluster) -> None:
    node, poster = node_and_poster(cluster)
    poster.bus.post_many([Posting(event=Order(1), at=cluster.clock.now() + timedelta(seconds=1))])
    node.lifecycle.claimer.hint(ANY_NODE)

    assert turn(node) == ([], 0)
    assert node.lifecycle.claimer.pause() <= LOOK_SECONDS
    cluster.clock.advance(seconds=LOOK_SECONDS)
    assert turn(node) == ([], 1)

    assert node.lifecycle.claimer.pause() == 1.0 - LOOK_SECONDS - AHEAD.total_seconds()


@needs.sqlite
def test_dates_to_the_second_are_claimed_as_if_they_were_whole(
    cluster: Cluster, database_url: URL
) -> None:
    """As CURRENT_TIMESTAMP writes them: they are compared as texts."""
    node = cluster.join("a", mode=Mode.POLLING, handler_threads=1, max_entries_claimed=2)
    second = cluster.clock.now().replace(microsecond=0) - timedelta(seconds=5)
    row = (
        "INSERT INTO bus_events (class_name, event_json, created_date, effective_date) VALUES (?, "
        "?, ?, ?)"
    )
    dates = [
        f"{second:%Y-%m-%d %H:%M:%S}{end}" for end in ("", ".000000", "", "", ".500000", "", "")
    ]
    engine = create_engine(database_url)
    with engine.begin() as connection:
        for number, date in enumerate(dates):
            connection.exec_driver_sql(row, ("Order", f'{{"number":{number}}}', date, date))
    engine.dispose()

    node.run()

    assert [event.number for event in node.handler.events] == [0, 2, 3, 5, 1, 6, 4]
    assert node.bus.find() == []


def test_a_full_claim_is_followed_by_another_at_once(cluster: Cluster) -> None:
    """From the lane of any node, too, whose name is empty."""
    node = cluster.join("a", mode=Mode.POLLING, handler_threads=4, max_entries_claimed=2)
    poster = cluster.peer("b", mode=Mode.POLLING)
    poster.bus.post_many([Order(1), Order(2), Order(3)])

    assert turn(node)[0] == [1, 2]
    assert node.lifecycle.claimer.pause() == 0.0
    assert turn(node)[0] == [1, 2, 3]
    assert node.lifecycle.claimer.pause() > 0.0


def test_a_look_that_takes_long_is_not_repeated_soon_beside_a_backlog(cluster: Cluster) -> None:
    node = cluster.join("a", handler_threads=1, max_entries_claimed=1, queue_capacity=1)
    cluster.peer("b").bus.post_many([Order(1), Order(2)])
    claimer, prospects = node.lifecycle.claimer, node.store.due_and_next

    def slow(own: Lane) -> object:
        cluster.clock.advance(seconds=LOOK_SECONDS)
        return prospects(own)

    vars(node.store)["due_and_next"] = slow
    claimer.look()
    assert turn(node) == ([1], 1)
    for seconds in (LOOK_SECONDS, LOOK_SECONDS * (LOOK_SHARE - 2) - 0.001):
        cluster.clock.advance(seconds=seconds)
        claimer.wake()
        assert turn(node) == ([1], 0)

    cluster.clock.advance(seconds=0.002)
    assert turn(node) == ([1], 1)


def test_a_hint_of_some_that_are_due_and_some_that_are_not_is_followed_by_a_look(
    cluster: Cluster,
) -> None:
    node, poster = node_and_poster(cluster)
    poster.bus.post_many(
        [
            Posting(event=Order(1)),
            Posting(event=Order(2), at=cluster.clock.now() + timedelta(seconds=1)),
        ]
    )
    node.lifecycle.claimer.hint(ANY_NODE)
    assert turn(node) == ([1], 0)

    cluster.clock.advance(seconds=node.lifecycle.claimer.pause())
    assert turn(node) == ([1], 1)
    cluster.clock.advance(seconds=node.lifecycle.claimer.pause())

    assert turn(node) == ([1, 2], 0)


def test_what_is_known_to_come_is_claimed_ahead_of_its_date_and_a_look_tells_the_next(
    cluster: Cluster,
) -> None:
    node, _ = node_and_poster(cluster)
    first, second = (cluster.clock.now() + timedelta(seconds=seconds) for seconds in (1, 2))
    node.bus.post_many([Posting(event=Order(1), at=first), Posting(event=Order(2), at=second)])
    assert node.lifecycle.claimer.pause() == 1.0 - AHEAD.total_seconds()

    cluster.clock.advance_to(first - AHEAD)
    assert turn(node) == ([1], 0)
    cluster.clock.advance_to(first + timedelta(seconds=AFTER_DATE_SECONDS))
    assert turn(node) == ([1], 1)
    cluster.clock.advance_to(second)

    assert turn(node) == ([1, 2], 0)


def soon(cluster: Cluster, **settings: Any) -> tuple[Peer, datetime]:
    """A node that has claimed one order ahead of its date, which is returned."""
    node = cluster.join("a", **settings)
    node.lifecycle.claim_loop.turn()
    date = cluster.clock.now() + timedelta(seconds=1)
    node.bus.post_many([Posting(event=Order(1), at=date)])
    cluster.clock.advance_to(date - AHEAD)
    assert turn(node)[0] == [1]
    return node, date


def test_what_was_claimed_ahead_starts_at_its_date_and_not_before(cluster: Cluster) -> None:
    node, date = soon(cluster)

    cluster.clock.advance_to(date - timedelta(microseconds=1))
    assert node.lifecycle.run_due() == []
    assert node.lifecycle.claimer.pause() <= 1e-6
    cluster.clock.advance_to(date)
    [outcome] = node.lifecycle.run_due()

    assert isinstance(outcome, Finished)
    assert outcome.started_date == date


def test_what_was_claimed_ahead_is_given_back_by_a_node_that_stops(cluster: Cluster) -> None:
    node, date = soon(cluster, mode=Mode.POLLING)

    node.lifecycle.membership.leave()

    [entry] = node.bus.find()
    assert (entry.processing_state, entry.lane, entry.effective_date) == (
        State.AVAILABLE,
        ANY_NODE,
        date,
    )


def test_what_was_claimed_ahead_by_a_node_that_was_declared_dead_runs_elsewhere(
    cluster: Cluster,
) -> None:
    node, date = soon(cluster)
    heir = cluster.join("b")
    cluster.bury("a", heir)
    assert heir.run()

    node.beat()  # and registers anew
    assert cluster.clock.now() > date
    node.run()

    assert (node.handler.numbers(), heir.handler.numbers()) == ([], [1])


def test_what_was_claimed_ahead_in_an_earlier_life_is_claimed_anew(cluster: Cluster) -> None:
    """The other member keeps the node, and its lease, alive."""
    settings = NotificationConfig(node_name="a", handler_threads=1)
    with NotificationService(cluster.url, settings, clock=cluster.clock):
        node, date = soon(cluster)
        lease = node.node.epoch
        node.lifecycle.membership.leave()
        node.join()
        assert node.node.epoch == lease

        cluster.clock.advance_to(date)
        outcomes = node.run()

        assert [type(outcome) for outcome in outcomes] == [Finished]
        assert node.handler.numbers() == [1]


def test_what_comes_due_before_that_which_was_claimed_ahead_is_claimed_next(
    cluster: Cluster,
) -> None:
    node, date = soon(cluster, max_entries_claimed=1, poll_interval_seconds=60)
    cluster.clock.advance(seconds=0.001)

    node.bus.post_many([Posting(event=Order(2), at=date - timedelta(seconds=0.002))])
    node.lifecycle.claimer.hint(node.lifecycle.holdings.own_lane)

    assert turn(node) == ([1, 2], 0)


def test_a_wake_up_while_something_is_to_be_claimed_does_not_put_off_a_look(
    cluster: Cluster,
) -> None:
    node, _ = node_and_poster(cluster)
    claimer = node.lifecycle.claimer
    claim = node.moves.claim

    def woken(*arguments: Any) -> object:
        claimer.wake()
        return claim(*arguments)

    vars(node.moves)["claim"] = woken
    # Of one that was removed meanwhile.
    claimer.expect(cluster.clock.now() + timedelta(seconds=0.01))
    cluster.clock.advance(seconds=0.01)
    assert turn(node) == ([], 0)

    assert claimer.pause() <= AFTER_DATE_SECONDS
    cluster.clock.advance(seconds=AFTER_DATE_SECONDS)
    assert turn(node) == ([], 1)


def backlog(node: Peer) -> list[datetime]:
    """Post seven orders a second apart, and claim two at a time, twice.

    Returns the dates since which the claims sought.
    """
    sought, claim = list[datetime](), node.moves.claim

    def noted(lane: Lane, owner: str, limit: int, since: datetime, ahead: timedelta) -> Claimed:
        sought.append(since)
        return claim(lane, owner, limit, since, ahead)

    vars(node.moves)["claim"] = noted
    start = node.lifecycle.clock.now() - timedelta(minutes=1)
    node.bus.post_many(
        [Posting(event=Order(number), at=start + timedelta(seconds=number)) for number in range(7)]
    )
    node.lifecycle.claim_loop.turn()
    node.lifecycle.claim_loop.turn()
    assert node.numbers_held() == [0, 1, 2, 3]
    return sought


def test_a_claim_seeks_from_where_the_last_one_ended(cluster: Cluster) -> None:
    """Under an old snapshot, it would walk over all that has been claimed since."""
    node = cluster.join("a", mode=Mode.POLLING, max_entries_claimed=2)
    start = cluster.clock.now() - timedelta(minutes=1)

    assert backlog(node) == [start, start + timedelta(seconds=1)]


def test_what_was_committed_late_comes_before_the_rest_of_a_backlog_within_a_second(
    cluster: Cluster,
) -> None:
    node = cluster.join("a", mode=Mode.POLLING, max_entries_claimed=2, poll_interval_seconds=60)
    backlog(node)
    late = cluster.clock.now() - timedelta(hours=1)
    # Its hint is lost.
    cluster.peer("b", mode=Mode.POLLING).bus.post_many([Posting(event=Order(9), at=late)])
    node.lifecycle.pool.run_submitted()
    node.lifecycle.finisher.write_all()

    cluster.clock.advance(seconds=LONGEST_LOOK_SECONDS)
    node.lifecycle.claim_loop.turn()

    assert node.numbers_held() == [4, 9]


def test_a_node_holds_the_more_of_what_any_node_may_run_the_more_it_has_just_run(
    cluster: Cluster,
) -> None:
    node = cluster.join("a", mode=Mode.POLLING, handler_threads=1)
    cluster.peer("b", mode=Mode.POLLING).bus.post_many(Order(number) for number in range(60))

    def share() -> int:
        held = len(node.claim())
        node.lifecycle.pool.run_submitted()
        node.lifecycle.finisher.write_all()
        return held

    # No time passes, so twice as many as have ended.
    assert [share() for _ in range(4)] == [2, 4, 12, 36]
    cluster.clock.advance(seconds=LULL_SECONDS + 0.1)
    assert share() == 2


def test_a_slow_commit_makes_no_node_hold_less(cluster: Cluster) -> None:
    node = cluster.join("a", handler_threads=1)
    node.bus.post_many(Order(number) for number in range(60))
    node.claim()
    node.lifecycle.pool.run_submitted()
    cluster.clock.advance(seconds=10 * WINDOW_SECONDS)

    node.lifecycle.finisher.write_all()

    assert node.lifecycle.holdings.pace.entries == 60 * GROWTH


def test_what_is_set_aside_without_a_run_makes_no_node_hold_more(cluster: Cluster) -> None:
    node = cluster.join("a", mode=Mode.POLLING, handler_threads=1)
    cluster.peer("b", mode=Mode.POLLING).bus.post_many(
        Posting(event={}, event_name="Invoice.paid") for _ in range(60)
    )

    for _ in range(5):
        assert len(node.claim()) == 2
        node.lifecycle.pool.run_submitted()
        node.lifecycle.finisher.write_all()

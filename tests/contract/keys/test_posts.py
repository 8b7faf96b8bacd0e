"""Posts with keys: who finds his key taken, what becomes of it, and when the key is free again."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from queue_core.model.keyed import OnConflict
from stickybus import (
    Answer,
    DuplicateKeyError,
    EntryContext,
    InMemoryBus,
    InvalidPostError,
    NameTooLongError,
    Posted,
    Posting,
    ScheduledRetries,
    State,
)
from stickybus.testing import drain
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeService
from tests.contract.harness import Order, Recorder, database_of
from tests.contract.keys.looks import numbers
from tests.contract.waits.looks import ran

MINUTE = timedelta(minutes=1)


def keyed(number: int, key: str = "a", **options: Any) -> Posting:
    return Posting(event=Order(number), key=key, **options)


def test_the_second_post_with_a_key_is_the_first_one(poster: Peer) -> None:
    first = poster.bus.post(Order(1), key="a")
    second = poster.bus.post(Order(2), key="a")
    assert (first.created, first.answer) == (True, Answer.ADDED)
    assert (second, second.created, second.answer) == (first, False, Answer.ALREADY_QUEUED)
    assert numbers(poster.bus.find()) == [1]


def test_an_answer_survives_pickling(poster: Peer) -> None:
    first = poster.bus.post(Order(1), key="a")
    again = pickle.loads(pickle.dumps(first))  # noqa: S301 -- our own
    assert (again, again.answer, type(again)) == (first, Answer.ADDED, Posted)
    assert (str(again), repr(again)) == ("1", "Posted(1, 'added')")


def test_keys_and_queues_are_apart_from_each_other(
    poster: Peer, cluster: Cluster, make_service: MakeService
) -> None:
    """Case, accents and trailing spaces count, and so does the queue."""
    keys = ["a", "A", "a ", "\u00e4", "a\u0308", "\u00e9" * 255, "\U0001f41f"]
    assert all(poster.bus.post(Order(1), key=key).created for key in keys)
    service = make_service(node_name="s", clock=cluster.clock)
    for name in ("one", "two"):
        queue = service.create_queue("shop", name, Recorder(), event_types=[Order])
        assert queue.schedule(Order(1), delay=0, key="a").created
        assert not queue.schedule(Order(1), delay=0, key="a").created


def test_a_key_is_free_when_its_entry_has_ended(poster: Peer, cluster: Cluster) -> None:
    first = poster.bus.post(Order(1), key="a")
    node = cluster.join("node")
    node.run()
    second = poster.bus.post(Order(2), key="a")
    assert second.created
    assert second != first
    node.run()
    assert ran(node) == [1, 2]


@pytest.mark.parametrize("ending", [State.PROCESSED, State.FAILED])
def test_a_key_is_kept_for_a_time_after_the_end(
    poster: Peer, cluster: Cluster, ending: State
) -> None:
    node = cluster.join("node")
    node.handler = Recorder(failures=10 if ending is State.FAILED else 0)
    first = poster.bus.post(Order(1), key="a", keep=MINUTE)
    node.run()
    cluster.clock.advance(seconds=59)
    poster.bus.truncate_history()
    again = poster.bus.post(Order(2), key="a", keep=MINUTE)
    assert (again, again.answer) == (first, Answer.DONE)
    cluster.clock.advance(seconds=1)
    assert poster.bus.post(Order(3), key="a", keep=MINUTE).created


def test_a_key_is_kept_for_ever(poster: Peer, cluster: Cluster) -> None:
    node = cluster.join("node")
    first = poster.bus.post(Order(1), key="a", keep="forever")
    node.run()
    poster.bus.truncate_history()
    cluster.clock.advance(seconds=10 * 365 * 86_400)
    again = poster.bus.post(Order(2), key="a")
    assert (again, again.answer) == (first, Answer.DONE)


def test_a_key_that_is_kept_while_its_entry_waits_is_free_when_that_runs(
    poster: Peer, cluster: Cluster
) -> None:
    first = poster.bus.post(Order(1), key="a", keep="waiting")
    again = poster.bus.post(Order(2), key="a", keep="waiting")
    assert (again, again.answer) == (first, Answer.ALREADY_QUEUED)
    node = cluster.join("node")
    node.claim()
    second = poster.bus.post(Order(3), key="a", keep="waiting")
    assert second.created
    node.run()
    assert ran(node) == [1, 3]
    assert poster.bus.post(Order(4), key="a", keep="waiting").created


def test_the_key_of_a_removed_entry_is_free(poster: Peer) -> None:
    first = poster.bus.post(Order(1), key="a", keep="forever", search_key1=7)
    poster.bus.forget(search_key1=7)
    second = poster.bus.post(Order(2), key="a")
    assert second.created
    assert second != first


def test_an_answer_tells_where_the_other_entry_stands(poster: Peer, cluster: Cluster) -> None:
    node, answers = cluster.join("node"), list[Answer]()

    class Keyed(Recorder):
        def __call__(self, event: Order, context: EntryContext) -> None:
            answers.append(poster.bus.post(event, key="a").answer)
            super().__call__(event, context)

    node.handler = Keyed(failures=1)
    node.bus.post(Order(1), key="a")
    answers_before = poster.bus.post(Order(2), key="a").answer
    node.run()
    assert (answers_before, answers) == (Answer.ALREADY_QUEUED, [Answer.LOCKED] * 2)


def test_who_asks_for_it_gets_an_error(poster: Peer) -> None:
    first = poster.bus.post(Order(1), key="a")
    with pytest.raises(DuplicateKeyError, match="'a' belongs to entry") as caught:
        poster.bus.post_many([Order(2), keyed(3, on_conflict="raise")])
    error = caught.value
    assert (error.queue_name, error.key, error.record_id) == ("bus", "a", first)
    assert error.answer == Answer.ALREADY_QUEUED
    assert numbers(poster.bus.find()) == [1]


def test_what_waits_is_replaced(poster: Peer, cluster: Cluster) -> None:
    first = poster.bus.post(
        Order(1), key="a", delay=3_600, search_key1="one", headers={"a": "1"}, user_token="t"
    )
    again = poster.bus.post(
        Order(2), key="a", on_conflict="replace", search_key2="two", headers={"b": "2"}
    )
    assert (again, again.answer) == (first, Answer.UPDATED)
    [entry] = poster.bus.find()
    assert numbers([entry]) == [2]
    assert (entry.search_key1, entry.search_key2, entry.user_token) == (None, "two", None)
    assert entry.captured == {"b": "2"}
    assert entry.effective_date == cluster.clock.now()
    node = cluster.join("node")
    node.run()
    assert ran(node) == [2]
    assert poster.bus.post(Order(3), key="a").created


def test_what_runs_is_not_replaced(poster: Peer, cluster: Cluster) -> None:
    first = poster.bus.post(Order(1), key="a")
    node = cluster.join("node")
    node.claim()
    again = poster.bus.post(Order(2), key="a", on_conflict="replace")
    assert (again, again.answer) == (first, Answer.LOCKED)
    node.run()
    assert ran(node) == [1]


def test_what_runs_is_run_once_more_with_the_newest_payload(poster: Peer, cluster: Cluster) -> None:
    first = poster.bus.post(Order(1), key="a")
    waits = poster.bus.post(Order(2), key="a", on_conflict="requeue")
    assert (waits, waits.answer) == (first, Answer.ALREADY_QUEUED)
    node = cluster.join("node")
    node.claim()
    for number in (3, 4):
        again = poster.bus.post(
            Order(number), key="a", on_conflict="requeue", search_key1="k", headers={"x": "y"}
        )
        assert (again, again.answer) == (first, Answer.LOCKED)
    node.run()
    assert ran(node) == [1, 4]
    [follower] = poster.bus.history(search_key1="k")
    assert follower.captured == {"x": "y"}
    assert poster.bus.post(Order(5), key="a").created


@pytest.mark.parametrize(("delay", "due"), [(None, 3), (2, 3), (9, 9)])
def test_what_runs_once_more_is_not_due_before_the_first_run_has_ended(
    poster: Peer, cluster: Cluster, delay: int | None, due: int
) -> None:
    poster.bus.post(Order(1), key="a")
    node, posted = cluster.join("node"), cluster.clock.now()
    node.claim()
    poster.bus.post(Order(2), key="a", on_conflict="requeue", delay=delay)
    cluster.clock.advance(seconds=3)
    node.lifecycle.run_due()
    [follower] = poster.bus.find()
    assert follower.created_date == posted + timedelta(seconds=3)
    assert follower.effective_date == posted + timedelta(seconds=due)


@pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
def test_what_replaces_an_entry_is_newer_than_what_was_to_follow_it(
    poster: Peer, cluster: Cluster, on_conflict: OnConflict
) -> None:
    node = cluster.join("node", retry=ScheduledRetries((60,)))
    node.handler = Recorder(failures=1)
    first = poster.bus.post(Order(1), key="a")
    node.claim()
    poster.bus.post(Order(2), key="a", on_conflict="requeue")
    node.run()
    again = poster.bus.post(Order(3), key="a", on_conflict=on_conflict)
    assert (again, again.answer) == (first, Answer.UPDATED)
    node.run()
    cluster.live(60, node)
    node.run()
    assert ran(node) == [1, 3]
    assert poster.bus.post(Order(4), key="a").created


def test_what_has_ended_is_run_once_more(poster: Peer, cluster: Cluster) -> None:
    node = cluster.join("node")
    poster.bus.post(Order(1), key="a", keep="forever")
    node.run()
    assert poster.bus.post(Order(2), key="a", keep="forever", on_conflict="requeue").created
    node.run()
    assert ran(node) == [1, 2]


def test_a_debounced_key_has_one_that_runs_and_one_that_waits(
    poster: Peer, cluster: Cluster
) -> None:
    options: dict[str, Any] = {"key": "a", "on_conflict": "debounce"}
    first = poster.bus.post(Order(1), delay=10, **options)
    cluster.clock.advance(seconds=9)
    again = poster.bus.post(Order(2), delay=10, **options)
    assert (again, again.answer) == (first, Answer.UPDATED)
    node = cluster.join("node")
    cluster.live(9, node)
    assert node.claim() == []
    cluster.live(1, node)
    assert node.claim() == [first]
    second = poster.bus.post(Order(3), delay=10, **options)
    assert second.created
    third = poster.bus.post(Order(4), delay=10, **options)
    assert (third, third.answer) == (second, Answer.UPDATED)
    node.run()
    cluster.live(10, node)
    node.run()
    assert ran(node) == [2, 4]
    assert poster.bus.post(Order(5), key="a").created


def test_a_key_may_stand_twice_in_one_post(poster: Peer) -> None:
    waits = poster.bus.post(Order(0), key="old")
    ids = poster.bus.post_many(
        [
            keyed(1),
            Order(2),
            keyed(3),
            keyed(4, "b"),
            keyed(5, on_conflict="replace"),
            keyed(6, "old"),
            keyed(7, "old", on_conflict="replace"),
        ]
    )
    answers = [one.answer if isinstance(one, Posted) else None for one in ids]
    added, queued, updated = Answer.ADDED, Answer.ALREADY_QUEUED, Answer.UPDATED
    assert answers == [added, None, queued, added, updated, queued, updated]
    assert ids[0] == ids[2] == ids[4]
    assert ids[5] == ids[6] == waits
    assert sorted(numbers(poster.bus.find())) == [2, 4, 5, 7]
    with pytest.raises(DuplicateKeyError, match="an earlier one of the same post"):
        poster.bus.post_many([keyed(1, "c"), keyed(2, "c", on_conflict="raise")])
    assert poster.bus.post(Order(3), key="c").created


def test_a_reaped_entry_has_its_key_still(poster: Peer, cluster: Cluster) -> None:
    first = poster.bus.post(Order(1), key="a")
    dead, alive = cluster.join("dead"), cluster.join("alive")
    assert dead.claim() == [first]
    cluster.bury("dead", alive)
    again = poster.bus.post(Order(2), key="a")
    [entry] = poster.bus.find()
    assert (again, again.created) == (entry.record_id, False)
    assert again != first
    cluster.live(60, alive)
    alive.run()
    assert poster.bus.post(Order(3), key="a").created


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"key": ""}, "key"),
        ({"key": "a\0"}, "key"),
        ({"key": 7}, "key"),
        ({"keep": "always"}, "keep='always' is not allowed. Allowed: waiting, living, forever"),
        ({"keep": timedelta(seconds=-1)}, "keep"),
        ({"on_conflict": "ignore"}, "on_conflict='ignore' is not allowed. Allowed: return, raise"),
        ({"key_wait": -1}, "key_wait"),
        ({"key_wait": float("nan")}, "key_wait"),
    ],
)
def test_what_is_not_allowed_is_refused(poster: Peer, options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidPostError, match=match):
        poster.bus.post(Order(1), **{"key": "a", **options})
    assert poster.bus.find() == []


@pytest.mark.parametrize(
    ("option", "needed"),
    [
        ({"keep": "forever"}, "key"),
        ({"on_conflict": "raise"}, "key"),
        ({"key_wait": 1.0}, "key"),
        ({"keep": timedelta(1), "order_key": "a"}, "key"),
        ({"order_failure": "skip"}, "order_key"),
        ({"order_failure": "skip", "key": "a"}, "order_key"),
    ],
)
def test_an_option_of_a_key_that_is_not_given_is_refused(
    poster: Peer, option: dict[str, Any], needed: str
) -> None:
    with pytest.raises(InvalidPostError, match=rf" needs {needed}=\. Nothing was written") as told:
        poster.bus.post(Order(1), **option)
    assert told.value.key == next(iter(option))
    assert poster.bus.find() == []


def test_the_bus_in_memory_has_no_keys() -> None:
    with InMemoryBus() as bus, pytest.raises(InvalidPostError, match="key needs the persistent"):
        bus.post(Order(1), key="a")


def test_a_key_that_is_too_long_is_refused(poster: Peer) -> None:
    with pytest.raises(NameTooLongError):
        poster.bus.post(Order(1), key="a" * 256)


def test_a_notification_has_a_key(make_service: MakeService) -> None:
    service, recorder = make_service(), Recorder()
    queue = service.create_queue("shop", "reminders", recorder, event_types=[Order])
    first = queue.schedule(Order(1), delay=0, key="a")
    assert queue.schedule_many([keyed(2), keyed(3, "b")])[0] == first
    assert len(drain(service)) == 2
    assert sorted(order.number for order in recorder.events) == [1, 3]


def test_a_kept_key_is_not_that_of_an_entry_that_has_its_id_now(
    cluster: Cluster, poster: Peer
) -> None:
    """A restored database may give ids again."""
    node = cluster.join("node")
    first = int(node.bus.post(Order(1), key="a", keep="forever"))
    node.run()
    other = int(poster.bus.post(Order(2)))
    with database_of(poster.bus).begin() as connection:
        connection.execute(
            text("UPDATE bus_events SET record_id = :first WHERE record_id = :other"),
            {"first": first, "other": other},
        )

    assert poster.bus.post(Order(3), key="a").answer is Answer.DONE

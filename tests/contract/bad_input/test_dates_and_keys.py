"""Dates without a time zone and keys past 64 bits are refused; the extremes are kept exactly."""

from __future__ import annotations

import decimal
import enum
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from bus.persistent import PersistentBus
from queue_core.errors import InvalidPostError, NaiveDateTimeError
from queue_core.model.lanes import PARKED
from queue_core.model.mode import Mode
from queue_core.model.posting import Posting
from queue_core.model.retry import RetryPolicy
from queue_core.model.retry_policies import ExponentialRetries, ImmediateRetries, ScheduledRetries
from queue_core.model.states import State
from queue_core.storage.search_keys import KEYLESS
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, ended, eventually, states

YEAR_1 = datetime.min.replace(tzinfo=UTC)
YEAR_9999 = datetime.max.replace(tzinfo=UTC)
NAIVE = YEAR_9999.replace(tzinfo=None)
EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
SMALLEST, LARGEST = -(2**63), 2**63 - 1


class Customer(enum.IntEnum):
    FIRST = 41


# -- dates ---------------------------------------------------------------------------------------


def test_a_date_without_a_time_zone_is_refused_by_every_call_that_takes_one(
    bus: PersistentBus, make_service: MakeService
) -> None:
    queue = make_service().create_queue("shop", "bills", Recorder(), event_types=[Order])
    record_id = queue.schedule(Order(1), at=YEAR_9999)
    calls: dict[str, Callable[[], Any]] = {
        "at": lambda: queue.schedule(Order(2), at=NAIVE),
        "at of many": lambda: queue.schedule_many(
            [Posting(event=Order(2)), Posting(event=Order(3), at=NAIVE)]
        ),
        "at of an update": lambda: queue.update(record_id, at=NAIVE),
        "at of a bus": lambda: bus.post_many([Posting(event=Order(2), at=NAIVE)]),
        "effective_before": lambda: queue.find(effective_before=NAIVE),
        "finished_before": lambda: queue.history(finished_before=NAIVE),
        "finished_since": lambda: queue.history(finished_since=NAIVE),
        "before": lambda: bus.truncate_history(before=NAIVE),
    }
    for what, call in calls.items():
        with pytest.raises(NaiveDateTimeError, match="has no time zone") as refused:
            call()
        assert refused.value.key == what.partition(" ")[0]
        if refused.value.key == "at":
            queue_name = "bus" if what == "at of a bus" else "shop:bills"
            assert refused.value.queue_name == queue_name
            assert str(refused.value).startswith(f"{queue_name}: at=")
        assert "datetime.now(UTC)" in str(refused.value)
    assert [(entry.record_id, entry.effective_date) for entry in queue.find()] == [
        (record_id, YEAR_9999)
    ]
    assert bus.find() == []


NO_DATES = ["2026-01-01", 1_767_225_600, 1.5, date(2026, 1, 1), object()]


def test_what_is_no_datetime_is_refused_and_nothing_is_written(make_service: MakeService) -> None:
    queue = make_service().create_queue("shop", "bills", Recorder(), event_types=[Order])
    given: Any
    for given in NO_DATES:
        with pytest.raises(InvalidPostError, match="at"):
            queue.schedule(Order(1), at=given)
        with pytest.raises(InvalidPostError, match="at"):
            queue.schedule_many([Posting(event=Order(1), at=given)])
        with pytest.raises(InvalidPostError, match="effective_before"):
            queue.find(effective_before=given)
    assert queue.find() == []


@pytest.mark.parametrize("edge", [YEAR_1.replace(tzinfo=EAST), YEAR_9999.replace(tzinfo=WEST)])
def test_a_date_that_leaves_the_calendar_in_utc_is_refused(
    make_service: MakeService, edge: datetime
) -> None:
    queue = make_service().create_queue("shop", "bills", Recorder(), event_types=[Order])
    with pytest.raises(InvalidPostError, match="years 1 to 9999"):
        queue.schedule(Order(1), at=edge)
    assert queue.find() == []


def test_a_delay_that_gives_no_date_is_refused(make_service: MakeService) -> None:
    queue = make_service().create_queue("shop", "bills", Recorder(), event_types=[Order])
    delays: list[Any] = [
        timedelta.max,
        timedelta.min,
        1e18,
        -1e18,
        float("inf"),
        float("nan"),
        "soon",
        object(),
    ]
    for delay in delays:
        with pytest.raises(InvalidPostError, match="delay") as refused:
            queue.schedule(Order(1), delay=delay)
        assert refused.value.key == "delay"
    assert queue.find() == []


def test_a_date_and_a_delay_together_and_neither_of_both_are_refused(
    make_service: MakeService,
) -> None:
    queue = make_service().create_queue("shop", "bills", Recorder(), event_types=[Order])
    with pytest.raises(InvalidPostError, match="give either at="):
        queue.schedule(Order(1), at=YEAR_9999, delay=1)
    with pytest.raises(InvalidPostError):
        queue.schedule(Order(1))
    assert queue.find() == []


@pytest.mark.parametrize("mode", [Mode.STICKY_POLLING, Mode.POLLING])
@pytest.mark.parametrize(
    "retry", [ImmediateRetries(1), ScheduledRetries((0, 0)), ExponentialRetries(0.001)]
)
def test_a_notification_for_the_year_1_fires_at_once_and_one_for_the_year_9999_waits(
    make_service: MakeService, mode: Mode, retry: RetryPolicy
) -> None:
    service = make_service(mode=mode)
    recorder = Recorder(failures=1)
    queue = service.create_queue("shop", "bills", recorder, event_types=[Order], retry=retry)
    service.start()
    late = queue.schedule(Order(9999), at=YEAR_9999)
    early = queue.schedule(Order(1), at=YEAR_1)
    recorder.wait(2)
    (entry,) = ended(queue)
    assert (entry.record_id, entry.processing_state, entry.error_count) == (
        early,
        State.PROCESSED,
        1,
    )
    assert recorder.contexts[0].effective_date == YEAR_1
    (waiting,) = queue.find()
    assert (waiting.record_id, waiting.effective_date) == (late, YEAR_9999)
    # What comes meanwhile is still on time.
    queue.schedule(Order(2), delay=0.01)
    assert recorder.wait(3)[-1] == Order(2)


def test_a_date_is_kept_to_the_microsecond_whatever_its_time_zone(
    make_service: MakeService,
) -> None:
    queue = make_service().create_queue("shop", "bills", Recorder(), event_types=[Order])
    dates = [
        datetime(2038, 1, 19, 3, 14, 8, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=EAST),
        datetime(2026, 3, 29, 2, 30, 0, 123_456, tzinfo=WEST),
    ]
    ids = [queue.schedule(Order(number), at=given) for number, given in enumerate(dates)]
    assert [entry.effective_date for entry in queue.find(record_ids=ids)] == dates
    assert all(entry.effective_date.utcoffset() == timedelta() for entry in queue.find())


def test_a_notification_for_the_past_that_nobody_knows_waits_its_retention_from_its_posting(
    make_service: MakeService,
) -> None:
    service = make_service(reap_period_seconds=0.02, poll_interval_seconds=0.02)
    queue = service.create_queue("shop", "bills", Recorder(), event_types=[Order])
    service.start()
    queue.stop()
    record_id = queue.schedule(Order(1), at=YEAR_1)
    eventually(lambda: [entry.lane for entry in queue.find()] == [PARKED], "it is parked")
    other = service.create_queue("shop", "other", Recorder(), event_types=[Order]).start()
    for number in range(3):
        other.schedule(Order(number), delay=0)
    ended(other, 3)
    assert [entry.record_id for entry in queue.find()] == [record_id]
    assert queue.history() == []


# -- search keys ---------------------------------------------------------------------------------

NO_KEYS: list[Any] = [
    "",
    41.0,
    float("nan"),
    decimal.Decimal(41),
    True,
    b"41",
    [41],
    {41: 41},
    object(),
    LARGEST + 1,
    SMALLEST - 1,
    10**40,
]


@pytest.mark.parametrize("key", ["search_key1", "search_key2"])
def test_a_search_key_of_any_other_type_is_refused_by_every_call_that_takes_one(
    bus: PersistentBus, make_service: MakeService, key: str
) -> None:
    queue = make_service().create_queue("shop", "bills", Recorder(), event_types=[Order])
    record_id = queue.schedule(Order(1), delay=60, search_key1=1, search_key2=2)
    calls: list[Callable[..., Any]] = [
        lambda **given: bus.post(Order(1), **given),
        lambda **given: bus.post_many([Order(1), Posting(event=Order(2), **given)]),
        bus.find,
        bus.history,
        lambda **given: queue.schedule(Order(1), delay=0, **given),
        lambda **given: queue.update(record_id, **given),
        queue.remove,
        lambda **given: queue.recur("daily", Order(1), every=60, **given),
    ]
    for value in NO_KEYS:
        for call in calls:
            with pytest.raises(InvalidPostError, match=key) as refused:
                call(**{key: value})
            assert refused.value.key == key
            assert repr(value)[:20] in str(refused.value)
    assert bus.find() == []
    assert [(entry.search_key1, entry.search_key2) for entry in queue.find()] == [(1, 2)]
    assert queue.recurring() == []


def test_keys_of_64_bits_and_of_integer_subclasses_are_kept_and_found(make_bus: MakeBus) -> None:
    bus = make_bus()
    pairs = [
        (SMALLEST, LARGEST),
        (LARGEST, SMALLEST),
        (0, -1),
        (Customer.FIRST, Customer.FIRST),
        (None, None),
    ]
    postings = [
        Posting(event=Order(1), search_key1=first, search_key2=second) for first, second in pairs
    ]
    ids = bus.post_many(postings)
    # Many at once take another way.
    more = bus.post_many(postings * 20)
    found = bus.find(record_ids=ids)
    assert [(entry.search_key1, entry.search_key2) for entry in found] == pairs
    for first, second in pairs:
        wanted = [KEYLESS if key is None else key for key in (first, second)]
        assert len(bus.find(search_key1=wanted[0], search_key2=wanted[1])) == 21
    recorder = Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    history = ended(bus, len(ids + more))
    assert set(states(history)) == {State.PROCESSED}
    assert {(context.search_key1, context.search_key2) for context in recorder.contexts} == set(
        pairs
    )


def test_a_state_that_is_none_is_refused(bus: PersistentBus) -> None:
    nonsense: list[Any] = [["BOGUS"], ["available"], "available", [None], [7]]
    for given in nonsense:
        for call in (bus.find, bus.history, bus.truncate_history):
            with pytest.raises(InvalidPostError, match="states"):
                call(states=given)

"""Names of any characters are kept apart byte by byte; names past their limits are refused."""

from __future__ import annotations

from typing import Any

import pytest

from bus.persistent import PersistentBus
from queue_core.errors import ConfigurationError, InvalidPostError, NameTooLongError
from queue_core.model.lanes import PARKED
from queue_core.model.mode import Mode
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.model.states import State
from queue_core.reading.depths import depths
from queue_core.running.subscriber import EntryContext
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Recorder, ended, engine_of, eventually, states

TRICKY = {
    "quotes": 'it\'s "quoted" `back`',
    "percent signs": "100%s %(name)s %%",
    "an injection": "'; DROP TABLE bus_events; --",
    "wildcards": "a_b%c[d]*",
    "backslashes and colons": "back\\slash :name ::text",
    "emoji": "🚌👩‍👩‍👧 €",
    "spaces at both ends": " bus ",
    "a line break": "two\nlines",
    "64 letters": "x" * 64,
    "64 emoji": "🚌" * 64,
    "one letter": "b",
    "right to left": "\u202e\u062d\u0627\u0641",
}
each_tricky = pytest.mark.parametrize(
    "name", [pytest.param(name, id=what) for what, name in TRICKY.items()]
)


@each_tricky
def test_a_tricky_name_serves_for_a_bus_a_node_an_event_and_a_subscriber(
    make_bus: MakeBus, name: str
) -> None:
    bus = make_bus(name=name, node_name=name, poll_interval_seconds=0.05, retry=ImmediateRetries(1))
    done, again = Recorder(), Recorder(failures=1)
    bus.subscribe(name, done, name=name)
    bus.subscribe(name, again, name=f"{name}, again")
    bus.start()
    record_id = bus.post({"number": 1}, event_name=name, user_token=name[:36], headers={name: name})
    again.wait(2)
    (entry,) = ended(bus)
    assert (entry.record_id, entry.queue_name, entry.class_name) == (record_id, name, name)
    assert (entry.creating_owner, entry.processing_owner, entry.lane) == (name, name, name)
    assert (entry.user_token, entry.captured) == (name[:36], {name: name})
    assert entry.progress == {name: True, f"{name}, again": True}
    assert (done.calls, again.calls) == (1, 2)
    context: EntryContext = again.contexts[1]
    assert (context.queue_name, context.class_name, context.headers) == (name, name, {name: name})


def test_tricky_names_serve_for_services_queues_and_schedules(make_service: MakeService) -> None:
    service = make_service(poll_interval_seconds=0.05)
    names = [name for name in TRICKY.values() if ":" not in name]
    recorders = {name: Recorder() for name in names}
    queues = {name: service.create_queue(name, name, recorders[name]) for name in names}
    service.start()
    for name, queue in queues.items():
        queue.recur(name, {"of": name}, every=3600)
        queue.schedule({"to": name}, delay=0)
    for name, queue in queues.items():
        assert recorders[name].wait() == [{"to": name}]
        assert ended(queue)[0].queue_name == f"{name}:{name}"
        assert [schedule.name for schedule in queue.recurring()] == [name]
        assert service.get_queue(name, name) is queue
        assert queue.stop_recurring(name)
    for name in set(TRICKY.values()) - set(names):
        with pytest.raises(InvalidPostError, match="no colons"):
            service.create_queue(name, "queue", Recorder())


IMPOSSIBLE = {
    "65 letters": "x" * 65,
    "65 emoji": "🚌" * 65,
    "none": "",
    "NUL": "a\0b",
    "half an emoji": "bus \ud83d",
}


def test_an_impossible_name_is_refused_for_a_bus_a_node_and_a_queue(
    make_bus: MakeBus, make_service: MakeService
) -> None:
    service = make_service()
    queue = service.create_queue("shop", "bills", Recorder())
    for name in IMPOSSIBLE.values():
        with pytest.raises(ConfigurationError, match="name") as refused:
            make_bus(name=name)
        assert refused.value.key == "name"
        with pytest.raises(ConfigurationError, match="node_name") as refused:
            make_bus(node_name=name)
        assert refused.value.key == "node_name"
        for names in ((name, "bills"), ("shop", name)):
            with pytest.raises(InvalidPostError):
                service.create_queue(*names, Recorder())
        with pytest.raises(InvalidPostError, match="Nothing was written"):
            queue.recur(name, {"number": 1}, every=60)
    assert queue.recurring() == []


def test_a_name_past_its_limit_says_so(make_service: MakeService) -> None:
    with pytest.raises(NameTooLongError, match="1 to 64 characters, not 65"):
        make_service().create_queue("shop", "x" * 65, Recorder())


NO_EVENT_NAMES: list[Any] = [
    "",
    "x" * 256,
    "a\0b",
    "half an emoji \ud83d",
    7,
    b"bytes",
    ["list"],
    object(),
]


def test_an_impossible_event_name_is_refused_and_nothing_is_written(bus: PersistentBus) -> None:
    for event_name in NO_EVENT_NAMES:
        with pytest.raises(InvalidPostError, match="Nothing was written"):
            bus.post({"number": 1}, event_name=event_name)
    assert bus.find() == []


def test_an_impossible_token_is_refused_and_nothing_is_written(bus: PersistentBus) -> None:
    for key in ("user_token", "future_user_token"):
        for token in ("x" * 37, "a\0b", "\ud83d"):
            tokens: dict[str, Any] = {key: token}
            with pytest.raises(InvalidPostError, match="Nothing was written") as refused:
                bus.post({"number": 1}, event_name="any", **tokens)
            assert refused.value.key == key
    assert bus.find() == []


NO_HEADERS: list[Any] = [
    {"a": 1},
    {1: "a"},
    {"a": None},
    {"a": {"b": "c"}},
    ["a"],
    "a",
    {"a": "\ud83d"},
    {"\ud83d": "a"},
    range(3),
]


def test_the_header_that_is_no_text_is_named(bus: PersistentBus) -> None:
    headers: Any = {"tenant": "shop", "trial": 4111}
    with pytest.raises(InvalidPostError, match="the value of 'trial' is an int") as refused:
        bus.post({"number": 1}, event_name="any", headers=headers)
    assert "4111" not in str(refused.value)


def test_headers_that_are_no_flat_texts_are_refused_and_nothing_is_written(
    bus: PersistentBus,
) -> None:
    for headers in NO_HEADERS:
        with pytest.raises(InvalidPostError, match="Nothing was written") as refused:
            bus.post({"number": 1}, event_name="any", headers=headers)
        assert refused.value.key == "headers"
    assert bus.find() == []


LIKE = ("cafe", "Cafe", "café", "cafe\u0301", "cafe ", "cafe\u00a0", "\uff43\uff41\uff46\uff45")
"""For most default collations some of these are one name."""


def test_event_names_that_differ_only_in_case_accent_or_trailing_space_stay_apart(
    bus: PersistentBus,
) -> None:
    recorders = {name: Recorder() for name in LIKE}
    for name, recorder in recorders.items():
        bus.subscribe(name, recorder, name=f"of {name}")
    bus.start()
    for name in LIKE:
        bus.post({"to": name}, event_name=name)
    for name, recorder in recorders.items():
        assert recorder.wait() == [{"to": name}]
    ended(bus, len(LIKE))
    assert [recorder.calls for recorder in recorders.values()] == [1] * len(LIKE)


def test_buses_whose_names_differ_only_in_case_accent_or_trailing_space_stay_apart(
    make_bus: MakeBus,
) -> None:
    buses = {name: make_bus(name=name, mode=Mode.POLLING) for name in LIKE}
    for name, bus in buses.items():
        bus.post({"to": name}, event_name="any")
    for name, bus in buses.items():
        assert [entry.queue_name for entry in bus.find()] == [name]
        assert bus.ready_count() == 1


def test_queues_whose_names_differ_only_in_case_accent_or_trailing_space_stay_apart(
    make_service: MakeService,
) -> None:
    service = make_service()
    recorders = {name: Recorder() for name in LIKE}
    queues = {
        name: service.create_queue("shop", name, recorder) for name, recorder in recorders.items()
    }
    for name, queue in queues.items():
        queue.recur(f"daily {name}", {"to": name}, every=3600)
        queue.recur(name, {"to": name}, every=3600)
        queue.recur("same", {"to": name}, every=3600)
    service.start()
    for name, queue in queues.items():
        queue.schedule({"to": name}, delay=0, search_key1=7)
    for name, queue in queues.items():
        assert recorders[name].wait() == [{"to": name}]
        assert sorted(schedule.name for schedule in queue.recurring()) == sorted(
            [f"daily {name}", name, "same"]
        )
        assert [entry.queue_name for entry in ended(queue)] == [f"shop:{name}"]
    queues["cafe"].stop_recurring("same")
    assert sorted(len(queue.recurring()) for queue in queues.values()) == [2] + [3] * (
        len(LIKE) - 1
    )


def test_schedules_whose_names_differ_only_in_case_accent_or_trailing_space_stay_apart(
    make_service: MakeService,
) -> None:
    queue = make_service().create_queue("shop", "bills", Recorder())
    for name in LIKE:
        queue.recur(name, {"to": name}, every=3600)
    assert {schedule.name for schedule in queue.recurring()} == set(LIKE)
    assert queue.stop_recurring("cafe ")
    assert {schedule.name for schedule in queue.recurring()} == set(LIKE) - {"cafe "}


@pytest.mark.parametrize("mode", [Mode.STICKY_EVENTS, Mode.STICKY_POLLING])
def test_nodes_whose_names_differ_only_in_case_accent_or_trailing_space_keep_their_own_lanes(
    make_bus: MakeBus, mode: Mode
) -> None:
    nodes = {name: make_bus(node_name=name, mode=mode, poll_interval_seconds=0.05) for name in LIKE}
    recorders = {name: Recorder() for name in LIKE}
    for name, bus in nodes.items():
        bus.subscribe("any", recorders[name])
        bus.start()
    for name, bus in nodes.items():
        bus.post({"by": name}, event_name="any")
    for name, recorder in recorders.items():
        assert recorder.wait() == [{"by": name}]
    history = ended(nodes["cafe"], len(LIKE))
    assert {entry.processing_owner for entry in history} == set(LIKE)
    assert [recorder.calls for recorder in recorders.values()] == [1] * len(LIKE)


# -- names that no node knows --------------------------------------------------------------------


def test_an_event_name_that_no_node_knows_is_parked_and_claimed_when_a_node_with_its_handler_joins(
    make_bus: MakeBus,
) -> None:
    posting = make_bus()
    posting.subscribe("known", Recorder())
    posting.start()
    record_id = posting.post({"number": 1}, event_name="unknown")
    (entry,) = eventually(
        lambda: [e for e in posting.find() if e.lane == PARKED], "the entry is parked"
    )
    assert (entry.record_id, entry.processing_state, entry.event_json) == (
        record_id,
        State.AVAILABLE,
        '{"number":1}',
    )
    assert [depth.parked for depth in depths(engine_of(posting).store)] == [1]
    joining = make_bus(poll_interval_seconds=0.05)
    recorder = Recorder()
    joining.subscribe("unknown", recorder)
    joining.start()
    assert recorder.wait() == [{"number": 1}]
    (done,) = ended(joining)
    assert (done.record_id, done.processing_state, done.error_count) == (
        record_id,
        State.PROCESSED,
        0,
    )


def test_notifications_of_a_queue_without_a_live_server_are_parked_until_one_serves_it(
    make_service: MakeService,
) -> None:
    posting = make_service()
    orphan = posting.create_queue("shop", "orphan", Recorder())
    posting.start()
    orphan.stop()
    ids = [orphan.schedule({"number": number}, delay=0) for number in range(3)]
    eventually(
        lambda: [entry.lane for entry in orphan.find()] == [PARKED] * 3,
        "all notifications are parked",
    )
    assert [depth.parked for depth in depths(engine_of(posting).store)] == [3]
    serving = make_service(poll_interval_seconds=0.05)
    recorder = Recorder()
    queue = serving.create_queue("shop", "orphan", recorder)
    serving.start()
    recorder.wait(3)
    assert [entry.record_id for entry in ended(queue, 3)] == ids
    assert set(states(queue.history())) == {State.PROCESSED}

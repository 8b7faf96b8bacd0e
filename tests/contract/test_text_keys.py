"""Search keys that are texts or UUIDs.

They are posted, found, changed, removed and forgotten, and whatever copies rows keeps them.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, text

from sql.search_keys import of_text
from stickybus import (
    KEYLESS,
    InMemoryBus,
    InvalidPostError,
    NameTooLongError,
    PayloadNotDecodableError,
    PersistentBus,
    Posting,
    State,
)
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder

ADA, BOB = "ada@example.org", "bob@example.org"
AWKWARD = [
    "100%",
    "a_b",
    "a\\b",
    'say "hi"',
    "naïve ☃",
    "!search_key1",
    " ",
    "/",
    "it's",
    "x" * 255,
]


@pytest.mark.parametrize("key", AWKWARD)
def test_a_text_finds_what_was_posted_with_it_and_nothing_else(make_bus: MakeBus, key: str) -> None:
    bus = make_bus()
    record_id = bus.post(Order(1), search_key1=key, search_key2=key)
    bus.post(Order(2), search_key1=key + "." if len(key) < 255 else "y", search_key2=7)
    bus.post(Order(3))

    searches: list[dict[str, Any]] = [
        {"search_key1": key},
        {"search_key2": key},
        {"search_key1": key, "search_key2": key},
    ]
    for wanted in searches:
        found = bus.find(**wanted)
        assert [entry.record_id for entry in found] == [record_id]
        assert (found[0].search_key1, found[0].search_key2) == (key, key)


def test_an_integer_and_the_text_of_it_are_two_keys(make_bus: MakeBus) -> None:
    bus = make_bus()
    number, digits = bus.post(Order(1), search_key1=41), bus.post(Order(2), search_key1="41")

    assert [entry.record_id for entry in bus.find(search_key1=41)] == [number]
    assert [entry.record_id for entry in bus.find(search_key1="41")] == [digits]


def test_a_uuid_is_its_text(make_bus: MakeBus) -> None:
    bus, key = make_bus(), uuid4()
    record_id = bus.post(Order(1), search_key2=key)

    for sought in (key, str(key), UUID(str(key))):
        assert [entry.record_id for entry in bus.find(search_key2=sought)] == [record_id]
    assert bus.find(search_key2=key)[0].search_key2 == str(key)


def test_two_texts_of_one_number_are_told_apart(make_bus: MakeBus, engine: Engine) -> None:
    bus = make_bus()
    first, second = bus.post(Order(1), search_key2=ADA), bus.post(Order(2), search_key2=BOB)
    with engine.begin() as connection:  # nobody has two such texts at hand
        connection.execute(
            text("UPDATE bus_events SET search_key2 = :number"), {"number": of_text(ADA).number}
        )

    assert [entry.record_id for entry in bus.find(search_key2=ADA)] == [first]
    assert bus.forget(search_key2=ADA).live == 1
    assert [entry.record_id for entry in bus.find()] == [second]


def test_handlers_see_texts_and_only_the_headers_that_were_given(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1), search_key1=ADA, search_key2=7, headers={"trace": "abc"})
    recorder.wait()

    [context] = recorder.contexts
    assert (context.search_key1, context.search_key2) == (ADA, 7)
    assert context.headers == {"trace": "abc"}


def test_claimed_entries_and_history_have_texts(make_bus: MakeBus) -> None:
    posting, running, recorder = make_bus(), make_bus(), Recorder()
    posting.post_many(Posting(event=Order(n), search_key1=ADA) for n in range(3))
    running.subscribe(Order, recorder)
    running.start()
    recorder.wait(3)
    running.stop()

    assert [context.search_key1 for context in recorder.contexts] == [ADA] * 3
    ended = running.history(search_key1=ADA)
    assert [entry.search_key1 for entry in ended] == [ADA] * 3
    assert {entry.processing_state for entry in ended} == {State.PROCESSED}


def test_an_update_changes_one_key_and_leaves_the_other(make_service: MakeService) -> None:
    service = make_service()
    queue = service.create_queue("shop", "reminders", print)
    record_id = queue.schedule(
        Order(1),
        delay=timedelta(hours=1),
        search_key1=ADA,
        search_key2=BOB,
        headers={"trace": "abc"},
    )
    steps: list[tuple[dict[str, Any], tuple[Any, Any]]] = [
        ({"search_key1": "carol"}, ("carol", BOB)),
        ({"search_key2": 7}, ("carol", 7)),
        ({"search_key1": None}, (None, 7)),
        ({"search_key1": 1, "search_key2": ADA}, (1, ADA)),
    ]
    for changes, after in steps:
        entry = queue.update(record_id, **changes)
        assert (entry.search_key1, entry.search_key2) == after
        assert entry.captured == {"trace": "abc"}
        assert [found.record_id for found in queue.find(search_key2=after[1] or KEYLESS)] == [
            record_id
        ]
    for (_, former), (_, later) in pairwise(steps):
        if former[0] not in {None, later[0]}:
            assert not queue.find(search_key1=former[0])


def test_removal_and_forgetting_go_by_texts(make_service: MakeService) -> None:
    service = make_service()
    queue = service.create_queue("shop", "reminders", print)
    for key in (ADA, ADA, BOB):
        queue.schedule(Order(1), delay=timedelta(hours=1), search_key2=key)

    assert queue.remove(search_key2=BOB) == 1
    told = queue.forget(search_key2=ADA)
    assert (told.live, told.ended) == (2, 0)
    assert queue.forget(search_key2=BOB).ended == 1


def test_notifications_of_a_schedule_have_its_text(make_service: MakeService) -> None:
    service, recorder = make_service(), Recorder()
    queue = service.create_queue("shop", "daily", recorder, event_types=[Order])
    service.start()
    queue.recur("report", Order(1), every=0.2, search_key1=ADA)
    recorder.wait()
    service.stop()

    assert queue.forget(search_key1=ADA, dry_run=True).schedules == ("shop:daily/report",)
    assert queue.forget(search_key1=BOB, dry_run=True).schedules == ()
    assert {entry.search_key1 for entry in queue.history()} == {ADA}


def test_an_entry_that_is_tried_again_keeps_its_text(make_bus: MakeBus) -> None:
    bus = make_bus()
    recorder = Recorder(failures=1)
    bus.subscribe(Order, recorder)
    bus.start()
    record_id = bus.post(Order(1), search_key1=ADA)
    recorder.wait(2)
    bus.stop()
    assert [entry.record_id for entry in bus.history(search_key1=ADA)] == [record_id]


def test_the_bus_in_memory_takes_texts() -> None:
    recorder = Recorder()
    with InMemoryBus() as bus:
        bus.subscribe(Order, recorder)
        bus.post(Order(1), search_key1=ADA)
        recorder.wait()
    [context] = recorder.contexts
    assert (context.search_key1, context.headers) == (ADA, {})


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("", InvalidPostError),
        ("x" * 256, NameTooLongError),
        ("a\0b", InvalidPostError),
        (1.5, InvalidPostError),
        (b"x", InvalidPostError),
    ],
)
def test_what_can_be_no_key_is_refused(
    make_bus: MakeBus, key: Any, error: type[InvalidPostError]
) -> None:
    bus = make_bus()
    with pytest.raises(error, match="search_key1"):
        bus.post(Order(1), search_key1=key)
    assert not bus.find()


def test_names_of_headers_that_the_library_uses_are_refused(bus: PersistentBus) -> None:
    with pytest.raises(InvalidPostError, match="begin with !"):
        bus.post(Order(1), headers={"!search_key1": "x"})


def test_keys_of_an_entry_whose_headers_can_not_be_read_are_not_changed(
    make_service: MakeService, engine: Engine
) -> None:
    queue = make_service().create_queue("shop", "reminders", print)
    record_id = queue.schedule(Order(1), delay=timedelta(hours=1), search_key1=7)
    with engine.begin() as connection:
        connection.execute(text("UPDATE notifications SET headers = '[1]'"))

    with pytest.raises(PayloadNotDecodableError, match="headers"):
        queue.update(record_id, search_key1=ADA)
    assert [entry.search_key1 for entry in queue.find()] == [7]

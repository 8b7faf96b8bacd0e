"""Events of each kind, and the entries they become."""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import attrs
import msgspec
import pydantic
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError

from bus.persistent import PersistentBus
from queue_core.errors import (
    InvalidPostError,
    PayloadNotSerialisableError,
    PayloadTooLargeError,
)
from queue_core.model.config import BusConfig
from queue_core.model.entry import Entry
from queue_core.model.lanes import PARKED
from queue_core.model.posting import Posting
from queue_core.model.states import State
from tests import requirements as needs
from tests.contract.harness import (
    Order,
    Recorder,
    ended,
    eventually,
    states,
)


@dataclass(frozen=True)
class Invoice:
    number: int
    day: date
    amount: Decimal


@attrs.define
class Parcel:
    number: int
    lines: list[str]


class Payment(msgspec.Struct):
    number: int
    at: datetime


class Customer(pydantic.BaseModel):
    number: int
    name: str


KINDS = [
    Invoice(1, date(2026, 2, 28), Decimal("9.90")),
    Parcel(2, ["a", "ü"]),
    Payment(3, datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)),
    Customer(number=4, name="o'Brien % 😀"),
]


@pytest.mark.parametrize("event", KINDS, ids=lambda event: type(event).__name__)
def test_an_event_of_each_kind_reaches_its_subscriber_as_it_was(
    bus: PersistentBus, event: Any
) -> None:
    recorder = Recorder()
    bus.subscribe(type(event), recorder)
    bus.start()
    bus.post(event)
    (received,) = recorder.wait()
    assert (type(received), received) == (type(event), event)
    assert states(ended(bus)) == [State.PROCESSED]


def test_a_plain_dict_reaches_the_subscribers_of_its_name(bus: PersistentBus) -> None:
    recorder, other = Recorder(), Recorder()
    bus.subscribe("order.paid", recorder, name="recorder")
    bus.subscribe("Order.Paid", other, name="other")
    bus.start()
    bus.post({"number": 1, "nested": {"a": [1, None, "ß"]}}, event_name="order.paid")
    assert recorder.wait() == [{"number": 1, "nested": {"a": [1, None, "ß"]}}]
    ended(bus)
    assert other.calls == 0


def test_a_dict_under_a_name_that_no_node_knows_is_parked_until_one_does(
    bus: PersistentBus,
) -> None:
    bus.start()
    record_id = bus.post({"number": 1}, event_name="unheard.of")
    (entry,) = eventually(
        lambda: [entry for entry in bus.find() if entry.lane == PARKED], "the entry is parked"
    )
    assert (entry.record_id, entry.processing_state, bus.history()) == (
        record_id,
        State.AVAILABLE,
        [],
    )
    recorder = Recorder()
    bus.subscribe("unheard.of", recorder)
    assert recorder.wait() == [{"number": 1}]
    assert [entry.record_id for entry in ended(bus)] == [record_id]


def test_a_handler_gets_a_copy_and_never_the_posters_object(bus: PersistentBus) -> None:
    recorder = Recorder()
    bus.subscribe(Parcel, recorder)
    bus.start()
    parcel = Parcel(1, ["as posted"])
    bus.post(parcel)
    parcel.lines.append("changed after the post")
    (received,) = recorder.wait()
    assert received is not parcel
    assert received.lines == ["as posted"]


class Name(str, Enum):  # noqa: UP042 -- its text is another than its value
    """Names that are no plain text."""

    FIRST = "order.first"
    SECOND = "order.second"


class Local(datetime):
    """A date of a library's own type."""


@pytest.mark.parametrize("padding", [0, 1_000], ids=["small", "large"])
def test_many_events_are_written_as_each_of_them_would_be(bus: PersistentBus, padding: int) -> None:
    postings = [
        Posting(
            event={"number": number, "text": "€ " * padding},
            event_name=(Name.FIRST, Name.SECOND, "order.third")[number % 3],
            at=Local.fromisoformat(f"2031-12-31T23:59:59.{number:06}+02:00")
            if number % 2
            else None,
            search_key1=(-(2**63), 2**63 - 1, None)[number % 3],
            search_key2=number,
            user_token=f"token {number}",
            future_user_token="same for all",
            headers={"number": str(number)} if number % 4 else None,
        )
        for number in range(24)
    ]

    def columns(entry: Entry) -> dict[str, Any]:
        found = msgspec.structs.asdict(entry)
        if found["effective_date"] == found["created_date"]:
            del found["effective_date"]
        return {
            name: value
            for name, value in found.items()
            if name not in {"record_id", "created_date"}
        }

    for posting in postings:
        bus.post_many([posting])
    alone = bus.find()
    ids = bus.post_many(postings)
    together = [entry for entry in bus.find() if entry.record_id in ids]
    assert [columns(entry) for entry in together] == [columns(entry) for entry in alone]
    assert {entry.class_name for entry in together} == {
        "order.first",
        "order.second",
        "order.third",
    }


def test_many_events_get_ids_in_their_order_and_keep_names_and_keys_of_their_own(
    bus: PersistentBus,
) -> None:
    postings = [
        Posting(
            event={"number": number},
            event_name="order",
            search_key1=number,
            search_key2=-number,
            user_token="t",
        )
        for number in range(50)
    ]
    ids = bus.post_many([*postings, Order(50)])
    assert ids == sorted(set(ids))
    found = bus.find()
    assert [entry.record_id for entry in found] == ids
    assert [(entry.search_key1, entry.search_key2) for entry in found[:50]] == [
        (number, -number) for number in range(50)
    ]
    assert [entry.class_name for entry in found] == ["order"] * 50 + ["Order"]
    assert bus.post_many([]) == []


def test_one_event_many_times_is_as_many_entries(bus: PersistentBus) -> None:
    ids = bus.post_many([Order(1)] * 3)
    assert [(entry.record_id, entry.event_json) for entry in bus.find()] == [
        (record_id, '{"number":1}') for record_id in ids
    ]


class Raw:
    """A codec that stores what an event holds as it is."""

    name = "raw"

    def encode(self, event: object) -> str | bytes:
        assert isinstance(event, dict)
        data: str | bytes = event["data"]
        return data

    def decode(self, data: str | bytes, event_type: type | None) -> object:
        del event_type
        return {"data": data}


@pytest.mark.parametrize(
    "data",
    [b"\0\xff'\\", b"", '\'\\ %s $1 {"€"}\t\r\n', "", "x" * 6_000_000],
    ids=["bytes", "no bytes", "marks", "no text", "6 MB"],
)
def test_what_a_codec_wrote_is_read_as_it_was(database_url: URL, data: str | bytes) -> None:
    config = BusConfig(max_payload_bytes=10_000_000)
    postings = [Posting(event={"data": data}, event_name="raw")] * 2
    bus = PersistentBus(database_url, config, metrics_registry=CollectorRegistry(), codec=Raw())
    with closing(bus):
        # The first statement of a connection goes another way.
        ids = [
            *(bus.post({"data": data}, event_name="raw") for _ in range(2)),
            *bus.post_many(postings),
        ]
        found = bus.find()
    assert [entry.record_id for entry in found] == ids
    for entry in found:
        assert (entry.event_json if isinstance(data, str) else entry.event_bytes) == data


@needs.postgresql
@pytest.mark.parametrize("entries", [1, 2])
def test_a_text_that_the_database_can_not_store_is_refused_whole(
    database_url: URL, entries: int
) -> None:
    bus = PersistentBus(database_url, metrics_registry=CollectorRegistry(), codec=Raw())
    with closing(bus):
        for data in ("before", "a NUL \0 inside", "after"):
            postings = [Posting(event={"data": data}, event_name="raw")] * entries
            with nullcontext() if "NUL" not in data else pytest.raises(DBAPIError, match="NUL"):
                bus.post_many(postings)
        found = {entry.event_json for entry in bus.find()}
    assert found == {"before", "after"}


def test_a_batch_with_one_bad_event_writes_nothing(bus: PersistentBus) -> None:
    with pytest.raises(InvalidPostError):
        bus.post_many([Order(1), {"no": "name"}, Order(2)])
    assert bus.find() == []


class Odd:
    """No event type."""


@pytest.mark.parametrize(
    ("event", "options", "error"),
    [
        pytest.param(Odd(), {}, PayloadNotSerialisableError, id="no event type"),
        pytest.param(
            {"a": object()}, {"event_name": "a"}, PayloadNotSerialisableError, id="not serialisable"
        ),
        pytest.param(
            {"a": "x" * 2_000_000}, {"event_name": "a"}, PayloadTooLargeError, id="too large"
        ),
        pytest.param({"a": 1}, {}, InvalidPostError, id="dict without a name"),
        pytest.param(Order(1), {"search_key1": 7.5}, InvalidPostError, id="fraction as key"),
        pytest.param(Order(1), {"search_key2": True}, InvalidPostError, id="bool as key"),
        pytest.param(Order(1), {"search_key2": 2**63}, InvalidPostError, id="key of 65 bits"),
        pytest.param(
            Order(1), {"headers": {"a": 1}}, InvalidPostError, id="header that is no text"
        ),
        pytest.param(Order(1), {"user_token": "x" * 37}, InvalidPostError, id="long token"),
    ],
)
def test_a_post_that_can_not_be_stored_raises_and_writes_nothing(
    bus: PersistentBus, event: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    bus.start()
    with pytest.raises(error, match="Nothing was written"):
        bus.post(event, **options)
    assert bus.find() == bus.history() == []

"""Payloads that can't be stored are refused before anything is written; others arrive whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr, computed_field

from bus.memory import InMemoryBus
from bus.persistent import PersistentBus
from queue_core.errors import InvalidPostError, PayloadNotSerialisableError, PayloadTooLargeError
from queue_core.model.mode import Mode
from queue_core.model.posting import Posting
from queue_core.model.states import State
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, ended, states

CAP_BYTES = 1_048_576
_FRAME_BYTES = len('{"text":""}')


@dataclass
class Report:
    text: str


@dataclass
class Parcel:
    content: object


class Account(BaseModel):
    password: SecretStr | None = None


class Invoice(BaseModel, extra="forbid"):
    number: int = Field(alias="theNumber")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.number


def _nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(depth):
        inner = {"inner": inner}
    return inner


def _cyclic() -> dict[str, Any]:
    cycle: dict[str, Any] = {}
    cycle["itself"] = cycle
    return cycle


UNSERIALISABLE = {
    "a lock": Parcel(threading.Lock()),
    "a function": Parcel(_nested),
    "not a number": Parcel(float("nan")),
    "an infinity": Parcel([float("-inf")]),
    "a complex number": Parcel(1j),
    "a lone surrogate": Report("half of an emoji: \ud83d"),
    "a cycle": Parcel(_cyclic()),
    "depth without end": Parcel(_nested(100_000)),
    "no event type": object(),
    "a bare text": "an event?",
    "None": None,
}


def test_a_payload_that_json_cannot_hold_is_refused_and_nothing_is_written(
    bus: PersistentBus,
) -> None:
    for what, event in UNSERIALISABLE.items():
        with pytest.raises(PayloadNotSerialisableError, match="Nothing was written"):
            bus.post_many([Order(1), event])
        assert bus.find() == [], what


def test_an_event_with_a_field_of_another_type_is_refused_first_or_later(
    bus: PersistentBus,
) -> None:
    recorder = Recorder()
    bus.subscribe(Report, recorder)
    bus.start()
    for text in ("fine", "and fine again"):
        with pytest.raises(PayloadNotSerialisableError, match="Expected `str`, got `int`"):
            bus.post(Report(5))  # type: ignore[arg-type]  # that is the point
        bus.post(Report(text))
    assert sorted(recorder.wait(2), key=repr) == [Report("and fine again"), Report("fine")]
    assert len(ended(bus, 2)) == 2


def test_what_would_not_arrive_as_it_was_posted_is_refused_by_every_call_and_nothing_is_written(
    bus: PersistentBus, make_service: MakeService
) -> None:
    service = make_service()
    queue = service.create_queue("shop", "mail", lambda _event: None, event_types=[Account])
    secret = Account(password=SecretStr("h1dden-value"))
    memory = InMemoryBus()
    calls: list[Callable[[], object]] = [
        lambda: bus.post(secret),
        lambda: bus.post_many([Order(1), secret]),
        lambda: queue.schedule(secret, delay=60),
        lambda: queue.recur("daily", secret, cron="@daily"),
        lambda: memory.post(secret),
    ]
    for call in calls:
        with pytest.raises(PayloadNotSerialisableError, match="its field password") as refused:
            call()
        assert "h1dden-value" not in str(refused.value)
    assert (bus.find(), queue.find(), queue.recurring(), memory.find()) == ([], [], [], [])


def test_an_aliased_model_with_computed_fields_is_delivered_as_it_was_posted(
    bus: PersistentBus,
) -> None:
    recorder = Recorder()
    bus.subscribe(Invoice, recorder)
    bus.start()
    bus.post(Invoice(theNumber=7))
    assert recorder.wait() == [Invoice(theNumber=7)]


def test_a_dict_with_keys_that_are_no_texts_is_refused_or_arrives_as_json_has_it(
    bus: PersistentBus,
) -> None:
    with pytest.raises(PayloadNotSerialisableError, match="Nothing was written"):
        bus.post({("a", "pair"): 1}, event_name="odd")
    assert bus.find() == []
    recorder = Recorder()
    bus.subscribe("odd", recorder)
    bus.start()
    bus.post({7: "a number's name"}, event_name="odd")
    assert recorder.wait() == [{"7": "a number's name"}]


def test_a_plain_dict_needs_a_name(bus: PersistentBus) -> None:
    with pytest.raises(InvalidPostError, match="event_name") as refused:
        bus.post({"number": 1})
    assert refused.value.key == "event_name"
    assert bus.find() == []


@pytest.mark.parametrize("mode", Mode)
def test_a_payload_of_exactly_the_cap_is_delivered_and_one_byte_more_is_refused(
    make_bus: MakeBus, mode: Mode
) -> None:
    bus = make_bus(mode=mode)
    recorder = Recorder()
    bus.subscribe(Report, recorder)
    bus.start()
    fits = Report("x" * (CAP_BYTES - _FRAME_BYTES))
    with pytest.raises(
        PayloadTooLargeError, match="1,048,577 bytes, the cap is 1,048,576"
    ) as refused:
        bus.post(Report(fits.text + "x"))
    assert (refused.value.size_bytes, refused.value.cap_bytes) == (CAP_BYTES + 1, CAP_BYTES)
    record_id = bus.post(fits)
    assert recorder.wait() == [fits]
    (entry,) = ended(bus)
    assert (entry.record_id, entry.processing_state) == (record_id, State.PROCESSED)
    assert len((entry.event_json or "").encode()) == CAP_BYTES


def test_the_cap_counts_bytes_and_not_characters(bus: PersistentBus) -> None:
    text = "€" * (CAP_BYTES // 3)
    with pytest.raises(PayloadTooLargeError):
        bus.post(Report(text))
    assert bus.find() == []
    bus.post(Report(text[:-4]))


def test_an_oversized_notification_is_refused_and_nothing_is_written(
    make_service: MakeService,
) -> None:
    service = make_service(max_payload_bytes=100)
    queue = service.create_queue("shop", "reports", Recorder(), event_types=[Report])
    with pytest.raises(PayloadTooLargeError, match="max_payload_bytes"):
        queue.schedule(Report("x" * 100), delay=0)
    with pytest.raises(PayloadTooLargeError):
        queue.recur("daily", Report("x" * 100), every=60)
    record_id = queue.schedule(Report("short"), delay=60)
    with pytest.raises(PayloadTooLargeError):
        queue.update(record_id, event=Report("x" * 100))
    assert [entry.event_json for entry in queue.find()] == ['{"text":"short"}']
    assert queue.recurring() == []


def test_one_oversized_payload_among_many_refuses_all(bus: PersistentBus) -> None:
    events = [Report("x"), Report("x" * CAP_BYTES), Report("x")]
    with pytest.raises(PayloadTooLargeError):
        bus.post_many(events)
    assert bus.find() == []


TRICKY = (
    "quote ' double \" backslash \\ percent %s %(x)s colon :name NUL \0 tab \t line \n € 🚌 \u2028 "
    "\x7f"
)


@pytest.mark.parametrize("padding", [0, 1_000])
def test_a_text_of_tricky_characters_arrives_as_it_was_posted(
    make_bus: MakeBus, padding: int
) -> None:
    bus = make_bus(mode=Mode.POLLING)
    recorder = Recorder()
    bus.subscribe(Report, recorder)
    bus.start()
    # One, many, and many that are large: PostgreSQL gets them in three ways.
    reports = [Report(f"{TRICKY} {number} {' ' * padding}") for number in range(50)]
    bus.post(reports[0])
    bus.post_many(reports)
    received = recorder.wait(51)
    assert sorted(report.text for report in received) == sorted(
        report.text for report in [reports[0], *reports]
    )
    assert set(states(ended(bus, 51))) == {State.PROCESSED}


@pytest.mark.slow
def test_a_thousand_payloads_of_100_kb_in_one_post_all_arrive(make_bus: MakeBus) -> None:
    """100 MB: six times MariaDB's packet limit, and each payload is past the 64 KB of a TEXT."""
    bus = make_bus(max_entries_claimed=100)
    sizes, changed = list[int](), threading.Condition()

    def handle(report: Report) -> None:
        with changed:
            sizes.append(len(report.text))
            changed.notify()

    bus.subscribe(Report, handle)
    bus.start()
    # Quotes: each doubles in JSON, and again where the driver escapes.
    text = '"' * 50_000
    ids = bus.post_many(
        [Posting(event=Report(text), search_key1=number) for number in range(1_000)]
    )
    assert ids == sorted(set(ids))
    with changed:
        assert changed.wait_for(lambda: len(sizes) >= 1_000, 60)
    assert set(sizes) == {50_000}
    history = ended(bus, 1_000)
    assert [(entry.record_id, entry.search_key1) for entry in history] == list(
        zip(ids, range(1_000), strict=True)
    )
    assert set(states(history)) == {State.PROCESSED}

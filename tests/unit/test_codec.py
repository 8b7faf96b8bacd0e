"""Event names, and payloads written and read."""

import gc
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from threading import Barrier, Thread
from typing import Any

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import (
    ConfigurationError,
    InvalidPostError,
    PayloadNotDecodableError,
    PayloadNotSerialisableError,
    PayloadTooLargeError,
)
from queue_core.model.event_types import EventTypes
from queue_core.model.json_codec import JsonCodec
from queue_core.model.known_codecs import Codecs, Encoded
from tests.unit.stored import entry

CAP = 1_048_576


@dataclass(frozen=True)
class Line:
    amount: Decimal
    note: str | None = None


@dataclass(frozen=True)
class InvoicePosted:
    invoice_id: int
    when: datetime = datetime(2026, 1, 1, 12, 30, 0, 123_456, tzinfo=UTC)
    lines: tuple[Line, ...] = ()
    token: uuid.UUID | None = None
    tags: frozenset[str] = frozenset()
    raw: bytes = b""
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class InvoiceReopened(InvoicePosted):
    reason: str = ""


@attrs.frozen
class UserSeen:
    user_id: int
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


class StockMoved(msgspec.Struct, frozen=True):
    sku: str
    count: int = 0


class CardCharged(pydantic.BaseModel):
    cents: int
    when: datetime | None = None
    ratio: float = 0.0


@dataclass
class Envelope:
    charge: CardCharged


@dataclass
class Unreadable:
    value: "NoSuchType"  # type: ignore[name-defined]  # noqa: F821 -- the case


def round_trip(event: object, event_name: str | None = None) -> object:
    types = EventTypes()
    codecs = Codecs(types)
    name = types.name_of(event, event_name)
    return codecs.decode(entry(codecs.encode(event, name, CAP), name))


@pytest.mark.parametrize(
    "event",
    [
        InvoicePosted(
            41, lines=(Line(Decimal("0.10"), "'%\0"),), token=uuid.UUID(int=7), raw=b"\0\xff"
        ),
        InvoicePosted(2**62, tags=frozenset({"a", "b"}), ratio=0.1),
        InvoiceReopened(1, reason="🚌"),
        UserSeen(3),
        StockMoved("a-1", -5),
        CardCharged(cents=5, when=datetime(2026, 1, 1, tzinfo=UTC)),
        Envelope(CardCharged(cents=9)),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_typed_event_comes_back_equal_and_as_a_copy(event: object) -> None:
    copy = round_trip(event)
    assert copy == event
    assert type(copy) is type(event)
    assert copy is not event


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=10,
)


@given(st.dictionaries(texts, json_values))
def test_a_plain_dict_comes_back_equal(event: dict[str, Any]) -> None:
    assert round_trip(event, "order.paid") == event


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"ratio": float("nan")}, "JSON has no NaN and no infinity"),
        ({"deep": [{"ratio": float("-inf")}]}, "JSON has no NaN and no infinity"),
        (InvoicePosted(1, ratio=float("inf")), "JSON has no NaN and no infinity"),
        (CardCharged(cents=1, ratio=float("nan")), "JSON has no NaN and no infinity"),
        (Envelope(CardCharged(cents=1, ratio=float("nan"))), "JSON has no NaN and no infinity"),
        ({"value": object()}, "an object can't be stored as JSON"),
        ({("a", "b"): 1}, "tuple"),
        ({"text": "\ud800"}, "surrogates not allowed"),
        (Unreadable(1), "NoSuchType"),
    ],
)
def test_what_json_can_not_hold_is_refused_before_anything_is_written(
    event: object, reason: str
) -> None:
    types = EventTypes()
    name = types.name_of(event, "order.paid" if isinstance(event, dict) else None)
    with pytest.raises(PayloadNotSerialisableError, match=reason) as caught:
        Codecs(types).encode(event, name, CAP)
    assert (caught.value.class_name, caught.value.codec) == (name, "json")
    assert "Nothing was written" in str(caught.value)
    assert caught.value.__cause__ is not None


def test_an_endless_payload_is_refused() -> None:
    endless: dict[str, object] = {}
    endless["self"] = endless
    with pytest.raises(PayloadNotSerialisableError, match=r"recursion|Stack overflow"):
        Codecs(EventTypes()).encode(endless, "order.paid", CAP)


@pytest.mark.parametrize("character", ["x", "é", "🚌"])
def test_the_cap_counts_bytes_and_is_inclusive(character: str) -> None:
    codecs = Codecs(EventTypes())
    event = {"a": character}
    size = len(f'{{"a":"{character}"}}'.encode())
    assert codecs.encode(event, "order.paid", size).event_json is not None
    with pytest.raises(
        PayloadTooLargeError, match=f"payload is {size} bytes, the cap is {size - 1}"
    ) as caught:
        codecs.encode(event, "order.paid", size - 1)
    assert (caught.value.size_bytes, caught.value.cap_bytes) == (size, size - 1)


def test_a_payload_of_exactly_one_mebibyte_passes_the_default_cap() -> None:
    body = "x" * (CAP - len('{"a":""}'))
    assert (
        Codecs(EventTypes()).encode({"a": body}, "order.paid", CAP).event_json
        == f'{{"a":"{body}"}}'
    )


@pytest.mark.parametrize(
    ("stored", "class_name", "reason"),
    [
        (Encoded('{"invoice_id": 1', None, "json"), "InvoicePosted", "DecodeError"),
        (
            Encoded('{"invoice_id": "one"}', None, "json"),
            "InvoicePosted",
            "Expected `int`, got `str`",
        ),
        (Encoded("{}", None, "json"), "InvoicePosted", "missing required field `invoice_id`"),
        (Encoded("[1]", None, "json"), "order.paid", "Expected `object`, got `array`"),
        (Encoded(None, b"\xff", "json"), "order.paid", "DecodeError"),
        (Encoded('{"cents": "x"}', None, "json"), "CardCharged", "ValidationError"),
        (Encoded("{}", None, "pickle"), "order.paid", "no codec 'pickle' here, only json"),
        (Encoded(None, None, "json"), "order.paid", "it has no payload"),
    ],
)
def test_a_corrupt_row_is_told_apart_by_its_reason_and_id(
    stored: Encoded, class_name: str, reason: str
) -> None:
    types = EventTypes()
    types.register(InvoicePosted)
    types.register(CardCharged)
    with pytest.raises(PayloadNotDecodableError, match=reason) as caught:
        Codecs(types).decode(entry(stored, class_name))
    assert caught.value.record_id == 41
    assert "41" in str(caught.value)


class Reversed:
    """A codec of the user: bytes, back to front."""

    name = "reversed"

    def encode(self, event: object) -> bytes:
        return msgspec.json.encode(event)[::-1]

    def decode(self, data: str | bytes, event_type: type | None) -> object:
        assert isinstance(data, bytes)
        return msgspec.json.decode(data[::-1], type=event_type or dict)


def test_a_codec_of_ones_own_writes_bytes_and_json_of_before_is_still_read() -> None:
    types = EventTypes()
    name = types.register(StockMoved)
    before, after = Codecs(types), Codecs(types, Reversed())
    event = StockMoved("a-1")
    encoded = after.encode(event, name, CAP)
    assert encoded == Encoded(None, b'}0:"tnuoc","1-a":"uks"{', "reversed")
    assert after.decode(entry(encoded, name)) == event
    assert after.decode(entry(before.encode(event, name, CAP), name)) == event
    assert Codecs(types, others=[Reversed()]).decode(entry(encoded, name)) == event


def test_json_is_compact_text() -> None:
    assert JsonCodec().encode({"a": [1, None, "é\0"]}) == '{"a":[1,null,"é\\u0000"]}'


def test_a_typed_event_is_registered_by_its_class_name() -> None:
    types = EventTypes()
    assert not types.knows("StockMoved")
    assert types.name_of(StockMoved("a")) == "StockMoved"
    assert types.knows("StockMoved")
    assert types.type_of("StockMoved") is StockMoved
    assert types.names() == {"StockMoved"}


def test_a_type_may_have_a_name_of_its_own() -> None:
    types = EventTypes()
    assert types.register(StockMoved, "stock.moved") == "stock.moved"
    assert types.name_of(StockMoved("a")) == "stock.moved"
    assert types.name_of(StockMoved("a"), "stock.counted") == "stock.counted"
    assert types.type_of("stock.counted") is StockMoved
    assert types.name_of(StockMoved("a")) == "stock.moved", "the first name stays the default one"


def test_a_dict_needs_an_event_name() -> None:
    types = EventTypes()
    with pytest.raises(InvalidPostError, match="event_name"):
        types.name_of({"a": 1})
    assert types.name_of({"a": 1}, "order.paid") == "order.paid"
    assert not types.knows("order.paid"), "only posted, so it can't be handled here"
    assert types.type_of("order.paid") is None


def test_a_name_known_for_dicts_takes_typed_events_as_dicts_until_it_gets_a_type() -> None:
    types = EventTypes()
    types.register_name("stock.moved")
    assert types.name_of(StockMoved("a"), "stock.moved") == "stock.moved"
    assert types.type_of("stock.moved") is None
    types.register(StockMoved, "stock.moved")
    types.register_name("stock.moved")
    assert types.type_of("stock.moved") is StockMoved


def test_two_types_can_not_share_a_name() -> None:
    types = EventTypes()
    types.register(StockMoved, "moved")
    with pytest.raises(ConfigurationError, match=r"StockMoved, so .*UserSeen can't have it"):
        types.register(UserSeen, "moved")
    with pytest.raises(ConfigurationError, match="moved"):
        types.name_of(UserSeen(1), "moved")
    assert types.type_of("moved") is StockMoved


def test_a_class_that_is_defined_anew_takes_its_own_place() -> None:
    def define() -> type:
        @dataclass
        class Redefined:
            x: int

        return Redefined

    types = EventTypes()
    types.register(define())
    again = define()
    assert types.register(again) == "Redefined"
    assert types.type_of("Redefined") is again


@pytest.mark.parametrize("no_event", [object(), 3, "text", [1], None, (1, 2)])
@pytest.mark.parametrize("event_name", [None, "order.paid"])
def test_what_is_no_event_is_not_posted(no_event: object, event_name: str | None) -> None:
    types = EventTypes()
    types.register_name("order.paid")
    with pytest.raises(PayloadNotSerialisableError, match="it is no event type"):
        types.name_of(no_event, event_name)


@pytest.mark.parametrize("event_name", [None, "order.paid"])
def test_a_class_in_the_place_of_its_instance_is_not_posted(event_name: str | None) -> None:
    types = EventTypes()
    types.register_name("order.paid")
    with pytest.raises(PayloadNotSerialisableError, match=r"InvoicePosted not posted: .*instance"):
        types.name_of(InvoicePosted, event_name)


@pytest.mark.parametrize("no_type", [int, dict, object])
def test_what_is_no_event_type_is_not_registered(no_type: type) -> None:
    with pytest.raises(ConfigurationError, match=f"{no_type.__name__} can't be an event type"):
        EventTypes().register(no_type)


def test_a_subclass_of_a_registered_type_is_known_without_being_registered() -> None:
    types = EventTypes()
    types.register(InvoicePosted)
    assert types.names() >= {"InvoicePosted", "InvoiceReopened"}
    assert types.knows("InvoiceReopened")
    assert types.type_of("InvoiceReopened") is InvoiceReopened


def test_a_subclass_of_a_subclass_is_known_too() -> None:
    @dataclass(frozen=True)
    class InvoiceReopenedTwice(InvoiceReopened):
        pass

    types = EventTypes()
    types.register(InvoicePosted)
    assert types.type_of("InvoiceReopenedTwice") is InvoiceReopenedTwice


def test_a_class_defined_with_slots_is_found_as_the_one_that_can_be_made() -> None:
    """`dataclass(slots=True)` makes a second class.

    The first one is a subclass too, until it is collected.
    """
    types = EventTypes()
    types.register(Line)
    gc.disable()
    try:
        slotted = make_dataclass(
            "Slotted", [("extra", int, field(default=0))], bases=(Line,), slots=True, frozen=True
        )
        assert len(Line.__subclasses__()) == 2
        assert types.type_of("Slotted") is slotted
    finally:
        gc.enable()


def test_a_name_that_fits_two_subclasses_is_an_error_that_names_both() -> None:
    def one() -> type:
        return make_dataclass(
            "Twin", [("a", int)], bases=(UserBase,), namespace={"__qualname__": "one.Twin"}
        )

    def two() -> type:
        return make_dataclass(
            "Twin", [("b", int)], bases=(UserBase,), namespace={"__qualname__": "two.Twin"}
        )

    @dataclass
    class UserBase:
        pass

    types = EventTypes()
    types.register(UserBase)
    kept = one(), two()
    with pytest.raises(ConfigurationError, match=r"one\.Twin and .*two\.Twin"):
        types.knows("Twin")
    types.register(kept[0], "Twin")
    assert types.type_of("Twin") is kept[0]


def test_no_name_is_ever_imported() -> None:
    types = EventTypes()
    types.register(StockMoved)
    for name in (
        "os.system",
        "builtins.dict",
        "tests.unit.test_codec.UserSeen",
        "UserSeen",
        "__main__",
    ):
        assert not types.knows(name)
        assert types.type_of(name) is None


def test_types_are_registered_from_several_threads() -> None:
    types = EventTypes()
    classes = [make_dataclass(f"Event{n}", [("x", int)]) for n in range(50)]
    start = Barrier(4)

    def register(make: Callable[[int], object]) -> None:
        start.wait(60)
        for event_type in classes:
            types.name_of(event_type(make(1)))

    threads = [Thread(target=register, args=(int,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert types.names() == {event_type.__name__ for event_type in classes}

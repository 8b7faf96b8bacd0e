"""What is posted is what arrives, or the post is refused: over generated models and values."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import PayloadNotSerialisableError
from queue_core.model.entry import Entry
from queue_core.model.event_types import EventTypes
from queue_core.model.known_codecs import Codecs, Encoded
from queue_core.model.states import State

CAP = 1_048_576
BERLIN = ZoneInfo("Europe/Berlin")
TWICE = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
"""In the hour that clocks pass twice."""
LEFT_OUT = datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN)
"""In the hour that clocks leave out."""


def sent(event: Any, codecs: Codecs | None = None, types: EventTypes | None = None) -> Any:
    """The event as a handler gets it. Raises PayloadNotSerialisableError if it is refused."""
    types = types or EventTypes()
    codecs = codecs or Codecs(types)
    name = types.name_of(event, "plain" if isinstance(event, dict) else None)
    return codecs.decode(_entry(codecs.encode(event, name, CAP), name))


def _entry(encoded: Encoded, name: str) -> Entry:
    now = datetime.now(UTC)
    row = dict.fromkeys(Entry.__struct_fields__)
    row |= {
        "record_id": 1,
        "queue_name": "bus",
        "class_name": name,
        "created_date": now,
        "effective_date": now,
    }
    return Entry(**{**row, **msgspec.structs.asdict(encoded), "processing_state": State.AVAILABLE})


class Aliased(pydantic.BaseModel):
    number: int = pydantic.Field(alias="theNumber")


class AliasedBothWays(pydantic.BaseModel):
    number: int = pydantic.Field(validation_alias="in", serialization_alias="out")


class Holder(pydantic.BaseModel):
    inner: Aliased


class Computed(pydantic.BaseModel, extra="forbid"):
    net: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def gross(self) -> int:
        return self.net * 2


class Open(pydantic.BaseModel, extra="allow"):
    number: int


class Left(pydantic.BaseModel):
    number: int
    hidden: str = pydantic.Field("", exclude=True)


class Noted(pydantic.BaseModel):
    number: int
    _note: str = pydantic.PrivateAttr("none")
    _unset: str = pydantic.PrivateAttr()

    def noted(self, note: str) -> Noted:
        self._note = note
        return self


class Vault(pydantic.BaseModel):
    password: pydantic.SecretStr | None = None
    key: pydantic.SecretBytes | None = None


class Unveiled(pydantic.BaseModel):
    password: pydantic.SecretStr

    @pydantic.field_serializer("password", when_used="json")
    def _unveil(self, password: pydantic.SecretStr) -> str:
        return password.get_secret_value()


class Doubling(pydantic.BaseModel):
    number: int

    @pydantic.field_validator("number")
    @classmethod
    def _double(cls, number: int) -> int:
        return number * 2


class Shouted(pydantic.BaseModel):
    text: str

    @pydantic.field_validator("text")
    @classmethod
    def _shout(cls, text: str) -> str:
        return text.upper()


class Loose(pydantic.BaseModel):
    content: Any = None


class Strict(pydantic.BaseModel, strict=True):
    number: int
    text: str
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    amount: Decimal = Decimal("0.10")
    pair: tuple[int, str] = (1, "a")
    tags: set[str] = set()
    token: UUID | None = None


@dataclass
class StrictHolder:
    inner: Strict


class Moment(pydantic.BaseModel):
    at: datetime


class Moments(pydantic.BaseModel):
    moments: list[Moment]
    by_date: dict[datetime, int]


class Patch(pydantic.BaseModel):
    name: str | None = None
    mail: str | None = None

    @pydantic.model_serializer(mode="wrap")
    def _only_set(self, write: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if name in self.model_fields_set}


@attrs.define
class Private:
    number: int = 0
    _hidden: int = 0


def _raised(number: int) -> int:
    return number + 1


@attrs.define
class Counted:
    number: int = attrs.field(converter=_raised)


@dataclass
class Base:
    number: int


@dataclass
class More(Base):
    note: str = ""


@dataclass
class Order:
    line: Base
    lines: list[Base] = field(default_factory=list)
    by_name: dict[str, Base] = field(default_factory=dict)
    maybe: Base | None = None


@dataclass
class Parcel:
    content: Any


@dataclass
class Unequal:
    number: int
    left_out: int = field(default=0, compare=False)


@dataclass
class Changed:
    number: int

    def __post_init__(self) -> None:
        self.number += 1


@dataclass
class Flat:
    number: int
    text: str = ""
    at: datetime | None = None


@dataclass(frozen=True)
class Night:
    at: datetime


@dataclass
class Nights:
    at: datetime
    several: list[datetime]
    by_name: dict[str, datetime]
    by_date: dict[datetime, int]
    dates: set[datetime]
    nights: frozenset[Night]


class Colour(Enum):
    RED = "red"


@dataclass
class Day:
    day: date = date(2026, 1, 1)


@dataclass
class Share:
    share: float = 0.5
    maybe: float | None = None


@dataclass
class Alarm:
    at: time = time(9)


@dataclass
class Moved:
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Times:
    times: set[time]


@dataclass
class Few:
    few: Annotated[int, msgspec.Meta(ge=0)] = 0


@dataclass
class Chosen:
    choice: Literal[1, "a"] = 1


@dataclass
class Coloured:
    colour: Colour = Colour.RED


@dataclass
class Tagged:
    tags: set[str]
    pair: tuple[int, str] = (0, "")


class Renamed(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    the_number: int
    the_text: str = ""


FINE = [
    Aliased(theNumber=3),
    AliasedBothWays(**{"in": 3}),
    Holder(inner=Aliased(theNumber=4)),
    Computed(net=3),
    Open(number=1, other=[1, {"a": None}]),
    Left(number=1),
    Noted(number=1),
    Vault(),
    Unveiled(password=pydantic.SecretStr("s3cret")),
    Shouted(text="aloud"),
    Loose(content=datetime(2026, 1, 1, tzinfo=UTC)),
    Loose(content={"a": (1, 2)}),
    Strict(number=1, text="x", token=UUID(int=7)),
    StrictHolder(Strict(number=1, text="x", tags={"a"})),
    Patch(name="a"),
    Day(),
    Share(),
    Share(1, 2),
    Alarm(),
    Alarm(time(9, tzinfo=timezone(timedelta(hours=2)))),
    Moved(),
    Moved(datetime(2026, 7, 1, tzinfo=BERLIN)),
    Times({time(9)}),
    Few(),
    Chosen(),
    Coloured(),
    Private(number=2),
    Counted(3),
    Order(Base(1)),
    Order(Base(1), [Base(2)], {"a": Base(3)}, Base(4)),
    Parcel({"when": datetime(2026, 1, 1, tzinfo=UTC), "pair": (1, 2), "inner": Base(1)}),
    Unequal(1, 5),
    Tagged({"a", "b"}, (1, "x")),
    Renamed(3, "x"),
    {"a": [1, (2, 3)], "b": Base(1)},
    {7: "seven"},
]

SILENT = {
    ".hidden, excluded": Left(number=1, hidden="h1dden-value"),
    "._note, private": Noted(number=1).noted("h1dden-value"),
    ".password": Vault(password=pydantic.SecretStr("h1dden-value")),
    ".key": Vault(key=pydantic.SecretBytes(b"h1dden-value")),
    ".number, changed by a validator": Doubling(number=3),
    "._hidden": Private(hidden=5),
    ".line": Order(More(1, "h1dden-value")),
    ".lines[1]": Order(Base(1), [Base(1), More(2, "h1dden-value")]),
    ".by_name": Order(Base(1), by_name={"a": More(2, "h1dden-value")}),
    ".maybe": Order(Base(1), maybe=More(2)),
    ".content, with a secret": Parcel(Vault(password=pydantic.SecretStr("h1dden-value"))),
    ".content, in a model": Loose(content=pydantic.SecretStr("h1dden-value")),
    ".content, without a field": Parcel([Left(number=1, hidden="h1dden-value")]),
    ".number, of __post_init__": Changed(1),
    ".tags": Tagged(["a", "a"]),  # type: ignore[arg-type]
    ".share, a float": Share(2**53 + 1),
    ".maybe, no number": Share(maybe=float("nan")),
    ".at, a time of day in a zone": Alarm(time(9, tzinfo=BERLIN)),
    ".at, with seconds in its offset": Moved(datetime(1850, 1, 1, tzinfo=BERLIN)),
    ".times": Times({time(9, tzinfo=BERLIN)}),
    ".colour": Coloured("red"),  # type: ignore[arg-type]
    "two keys that are one": {7: "a", "7": "b"},
    "a secret in a dict": {"a": [Vault(password=pydantic.SecretStr("h1dden-value"))]},
}


@pytest.mark.parametrize("event", FINE, ids=lambda event: type(event).__name__)
def test_what_a_model_can_read_again_arrives_as_it_was_posted(event: Any) -> None:
    arrived = sent(event)
    if not isinstance(event, Parcel | Loose | dict):
        assert arrived == event
    assert type(arrived) is type(event)


@pytest.mark.parametrize("place", SILENT)
def test_what_would_arrive_changed_is_refused_and_the_field_is_named(place: str) -> None:
    event = SILENT[place]
    with pytest.raises(
        PayloadNotSerialisableError, match="would not arrive as it was posted"
    ) as refused:
        sent(event)
    if place.startswith("."):
        assert f"its field {place.partition(',')[0][1:]}" in str(refused.value)
    assert "h1dden-value" not in str(refused.value), "payloads appear in no message"
    assert "Nothing was written" in str(refused.value)


@pytest.mark.parametrize("place", SILENT)
def test_what_would_arrive_changed_is_refused_after_others_of_its_type_were_fine_too(
    place: str,
) -> None:
    types = EventTypes()
    codecs = Codecs(types)
    event = SILENT[place]
    for fine in (one for one in FINE if type(one) is type(event)):
        sent(fine, codecs, types)
    with pytest.raises(PayloadNotSerialisableError):
        sent(event, codecs, types)


UNREADABLE = {
    "a text for a number": Flat("h1dden-value"),  # type: ignore[arg-type]
    "a text for a model's": Aliased.model_construct(number="h1dden-value"),  # type: ignore[arg-type]
    "a datetime for a date": Day(datetime(2026, 1, 1, 5, 6)),  # noqa: DTZ001 - the case
    "more than a float": Share(10**400),
    "less than the least": Few(-3),
    "true for one": Chosen(True),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_an_event_that_could_not_be_read_again_is_refused_first_or_later(what: str) -> None:
    types = EventTypes()
    codecs = Codecs(types)
    event = UNREADABLE[what]
    for fine in (None, *(one for one in (*FINE, Flat(1)) if type(one) is type(event))):
        if fine is not None:
            sent(fine, codecs, types)
        with pytest.raises(
            PayloadNotSerialisableError, match="it could not be read again"
        ) as refused:
            sent(event, codecs, types)
        assert "h1dden-value" not in str(refused.value)


def shown(moment: datetime) -> tuple[datetime, timedelta | None]:
    return moment.replace(tzinfo=None, fold=0), moment.utcoffset()


@pytest.mark.parametrize("at", [TWICE, TWICE.replace(fold=1), LEFT_OUT, LEFT_OUT.replace(fold=1)])
def test_local_times_arrive_while_clocks_are_changed(at: datetime) -> None:
    nights = sent(Nights(at, [at], {"a": at}, {at: 1}, {at}, frozenset({Night(at)})))
    (key,), (one,), (night,) = nights.by_date, nights.dates, nights.nights
    found = [nights.at, *nights.several, nights.by_name["a"], key, one, night.at]
    moments = sent(Moments(moments=[Moment(at=at)], by_date={at: 1}))
    found += [moments.moments[0].at, *moments.by_date]
    assert [shown(moment) for moment in found] == [shown(at)] * len(found)
    assert sent({"at": at}) == {"at": at.isoformat()}


@dataclass
class Relocated:
    at: datetime

    def __post_init__(self) -> None:
        self.at = self.at.replace(tzinfo=BERLIN)


def test_a_local_time_that_arrives_as_that_of_the_other_hour_is_refused() -> None:
    with pytest.raises(PayloadNotSerialisableError, match="its field at would not arrive"):
        sent(Relocated(TWICE.replace(fold=1)))


def test_a_local_time_without_a_zone_arrives_without_its_fold() -> None:
    at = datetime(2026, 10, 25, 2, 30, fold=1)  # noqa: DTZ001 - the case
    assert sent(Moved(at)).at == at


def test_a_patch_arrives_with_the_fields_that_were_set() -> None:
    assert sent(Patch(name="a")).model_fields_set == {"name"}


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
moments = st.builds(
    lambda at, minutes, zone, fold: (at + timedelta(minutes=minutes)).replace(
        tzinfo=zone, fold=fold
    ),
    # Clocks change, and those of 1850 were no whole minutes apart.
    st.sampled_from([datetime(2026, 3, 29, 2), datetime(2026, 10, 25, 2), datetime(1850, 1, 1)]),  # noqa: DTZ001 - a zone follows
    st.integers(-90, 90),
    st.sampled_from([UTC, BERLIN, ZoneInfo("Australia/Lord_Howe"), timezone(timedelta(hours=-9))]),
    st.integers(0, 1),
)
KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": (int, st.integers(-(2**63), 2**63 - 1)),
    "text": (str, texts),
    "maybe": (int | None, st.none() | st.integers(-5, 5)),
    "date": (datetime, st.datetimes(timezones=st.just(UTC))),
    "moment": (datetime, moments),
    "moments": (list[datetime], st.lists(moments, max_size=3)),
    "by moment": (dict[datetime, int], st.dictionaries(moments, st.integers(0, 1), max_size=2)),
    "day": (date, st.dates() | st.datetimes()),
    "clock": (time, st.times(timezones=st.sampled_from([None, UTC, BERLIN]))),
    "float": (
        float,
        st.floats() | st.integers(-5, 5) | st.integers(2**53, 2**54) | st.just(10**400),
    ),
    "maybe float": (float | None, st.none() | st.floats() | st.integers(-5, 5)),
    "decimal": (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    "span": (timedelta, st.timedeltas()),
    "colour": (Colour, st.just(Colour.RED)),
    "few": (Annotated[int, msgspec.Meta(ge=0)], st.integers(-2, 2)),
    "choice": (Literal[1, "a"], st.sampled_from([1, "a", True])),
    "list": (list[int], st.lists(st.integers(-5, 5), max_size=3)),
    "set": (set[str], st.sets(texts, max_size=3)),
    "dict": (dict[str, int], st.dictionaries(texts, st.integers(-5, 5), max_size=3)),
    "bytes": (bytes, st.binary(max_size=8)),
    "base": (
        Base,
        st.builds(Base, st.integers(-5, 5)) | st.builds(More, st.integers(-5, 5), texts),
    ),
    "bases": (
        list[Base],
        st.lists(st.builds(Base, st.integers(-5, 5)) | st.builds(More, st.just(1))),
    ),
    "any": (Any, texts | st.integers(-5, 5) | st.lists(texts, max_size=2)),
    "secret": (pydantic.SecretStr, texts.map(pydantic.SecretStr)),
    "aliased": (Aliased, st.integers(-5, 5).map(lambda number: Aliased(theNumber=number))),
}


def _is_inexact(value: float | None) -> bool:
    if value is None:
        return False
    try:
        return not math.isfinite(value) or float(value) != value
    except OverflowError:
        return True


def _has_seconds(moment: datetime) -> bool:
    return (moment.utcoffset() or timedelta()) % timedelta(minutes=1) != timedelta()


REASONS: dict[str, Callable[[Any], bool]] = {
    "secret": lambda _: True,
    "base": lambda value: type(value) is More,
    "bases": lambda value: any(type(one) is More for one in value),
    "moment": _has_seconds,
    "moments": lambda value: any(map(_has_seconds, value)),
    # Two of one instant are one key when they arrive.
    "by moment": lambda value: (
        any(map(_has_seconds, value)) or len({one.astimezone(UTC) for one in value}) < len(value)
    ),
    "day": lambda value: isinstance(value, datetime),
    "clock": lambda value: value.tzinfo is BERLIN,
    "float": _is_inexact,
    "maybe float": _is_inexact,
    "few": lambda value: value < 0,
    "choice": lambda value: value is True,
}
"""Values that give a reason to refuse a post."""
NO_PYDANTIC = sorted(set(KINDS) - {"secret"})


def _dataclass(kinds: list[str]) -> Callable[..., Any]:
    return make_dataclass(
        "Generated", [(f"f{place}", KINDS[kind][0]) for place, kind in enumerate(kinds)]
    )


def _attrs(kinds: list[str]) -> Callable[..., Any]:
    return attrs.make_class(
        "Generated",
        {f"f{place}": attrs.field(type=KINDS[kind][0]) for place, kind in enumerate(kinds)},
    )


def _struct(kinds: list[str]) -> Callable[..., Any]:
    fields = [(f"f{place}", KINDS[kind][0]) for place, kind in enumerate(kinds)]
    return msgspec.defstruct("Generated", fields, rename="camel")


def _pydantic(kinds: list[str]) -> Callable[..., Any]:
    fields: dict[str, Any] = {
        f"f{place}": (
            Annotated[KINDS[kind][0], pydantic.Field(alias=f"a{place}" if place % 2 else None)],
            ...,
        )
        for place, kind in enumerate(kinds)
    }
    model: type[pydantic.BaseModel] = pydantic.create_model("Generated", **fields)
    return model.model_construct


@pytest.mark.parametrize("make", [_dataclass, _attrs, _struct, _pydantic])
@given(st.data())
def test_generated_models_arrive_as_they_were_posted_or_are_refused(
    make: Callable[[list[str]], Callable[..., Any]], data: st.DataObject
) -> None:
    allowed = sorted(set(KINDS) - {"bytes"}) if make is _pydantic else NO_PYDANTIC
    kinds = data.draw(st.lists(st.sampled_from(allowed), min_size=1, max_size=5))
    build = make(kinds)
    types = EventTypes()
    codecs = Codecs(types)
    for _ in range(3):  # the first of its type, and later ones
        values = {f"f{place}": data.draw(KINDS[kind][1]) for place, kind in enumerate(kinds)}
        event = build(**values)
        try:
            arrived = sent(event, codecs, types)
        except PayloadNotSerialisableError:
            assert any(
                kind in REASONS and REASONS[kind](value)
                for kind, value in zip(kinds, values.values(), strict=True)
            )
            continue
        for name, value in values.items():
            same = getattr(arrived, name)
            assert _plainly(same) == _plainly(value)
            if isinstance(value, Base | date):
                assert type(same) is type(value)


def _plainly(value: Any) -> Any:
    """With what `==` leaves out."""
    if isinstance(value, datetime):
        return shown(value)
    if isinstance(value, time):
        return value, value.tzinfo is None
    if isinstance(value, list):
        return [_plainly(one) for one in value]
    if isinstance(value, dict):
        return [(_plainly(key), one) for key, one in value.items()]
    return value


def test_first_events_of_a_type_from_several_threads_are_all_checked() -> None:
    types = EventTypes()
    codecs = Codecs(types)
    start = threading.Barrier(4)
    refused = list[Exception]()

    def post() -> None:
        start.wait(60)
        for _ in range(200):
            try:
                sent(Private(hidden=1), codecs, types)
            except PayloadNotSerialisableError as error:
                refused.append(error)
            sent(Flat(1), codecs, types)

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(refused) == 800

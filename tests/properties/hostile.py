"""Values passed by mistake or in mischief, and the calls that are tried with them."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID

from queue_core.queue_reads import Reads
from stickybus import InMemoryBus, MissedPolicy, NotificationQueue, PersistentBus, Posting, State


@dataclass
class Order:
    number: int


class Rude:
    """No message can show it."""

    def __repr__(self) -> str:
        raise RuntimeError("rude")


class Plain(str):
    """As `numpy.str_`, or Django's SafeString."""

    __slots__ = ()


class Word(str, enum.Enum):  # noqa: UP042 -- its `str` is another one than StrEnum's
    """A text by its type, and another one by `str`."""

    HOLD = "hold"


class Broken(str):
    """A text whose own methods fail."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no answer")

    def __len__(self) -> int:
        raise RuntimeError("no answer")

    __str__ = __repr__ = __bool__ = __len__  # type: ignore[assignment]


class BrokenNumber(int):
    """A number that can't be compared."""

    def __lt__(self, other: object) -> bool:
        raise RuntimeError("no answer")

    __le__ = __gt__ = __ge__ = __lt__


class Ambiguous:
    """As an array of several numbers: what is compared with it is neither true nor false."""

    def __eq__(self, other: object) -> Any:
        return self

    __ne__ = __eq__
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


class Zone(tzinfo):
    """A time zone that answers with anything."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def utcoffset(self, date: datetime | None) -> timedelta | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: timedelta = self.answer
        return answer

    def dst(self, date: datetime | None) -> timedelta | None:
        return self.utcoffset(date)

    def tzname(self, date: datetime | None) -> str | None:
        return str(self.utcoffset(date))


class CallersError(Exception):
    """Raised by an iterable of the caller's: calls let it pass."""


class Interrupted:
    """An iterable that raises in the middle."""

    def __iter__(self) -> Iterator[Any]:
        yield 1
        raise CallersError("no more")


class Odd(Mapping[str, str]):
    """A mapping whose values can't be read."""

    def __getitem__(self, key: str) -> str:
        raise RuntimeError("no value")

    def __iter__(self) -> Iterator[str]:
        yield "one"

    def __len__(self) -> int:
        return 1


EAST, WEST = timezone(timedelta(hours=12)), timezone(timedelta(hours=-12))
DECEIVING: list[Any] = [
    *(Plain("x"), Plain("hold"), Word.HOLD, {Plain("x"): Plain("y")}, Interrupted()),
    *(
        datetime(2026, 1, 1, tzinfo=Zone(answer))
        for answer in (RuntimeError("no offset"), "no offset", timedelta(days=5))
    ),
]
"""Values whose class derives from an allowed type, and overrides its methods."""
BROKEN: list[Any] = [Ambiguous(), Broken("x"), BrokenNumber(5), Odd()]
"""What fails where it is looked at. Calls about entries alone are tried with it."""
HOSTILE: list[Any] = [
    *DECEIVING,
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63) - 1, 2**70, 10**5000),
    *(
        float("nan"),
        float("inf"),
        float("-inf"),
        1e308,
        -0.5,
        0.5,
        Decimal("NaN"),
        Decimal("1e999"),
    ),
    *("", "x", "5", "\0", "a\0b", "\ud800", "ß" * 100_000, "SKIP", "UTC", "/", "a:b", "!parked"),
    *(
        b"",
        b"\xff",
        bytearray(b"x"),
        [],
        [None],
        ["x"],
        [2**70],
        ["\ud800"],
        (),
        {},
        {1: 2},
        {"a": object()},
    ),
    *(
        {"a": "\ud800"},
        set(),
        frozenset({1}),
        range(3),
        object(),
        object,
        int,
        Order,
        Order(1),
        Rude(),
        len,
        ...,
    ),
    # Naive on purpose.
    *(date(2026, 1, 1), datetime(2026, 1, 1), datetime.min, datetime.max),  # noqa: DTZ001, DTZ901
    *(datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
    *(datetime.max.replace(tzinfo=WEST), datetime.min.replace(tzinfo=EAST)),
    *(
        timedelta.max,
        timedelta.min,
        timedelta(0),
        timedelta(microseconds=1),
        UUID(int=1),
        State.FAILED,
    ),
    *(MissedPolicy.SKIP, Posting(event=None), Posting(event=Order(1), at="soon")),  # type: ignore[arg-type]
]
CALLS = {
    PersistentBus: ["post", "post_many", "retry", "discard"],
    NotificationQueue: [
        "schedule",
        "schedule_many",
        "update",
        "remove",
        "recur",
        "stop_recurring",
        "recurring",
    ],
    InMemoryBus: ["post", "post_many", "find", "history"],
}
READS = [name for name in vars(Reads) if not name.startswith("_") and not name.endswith("_async")]

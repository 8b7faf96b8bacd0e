"""The steps of a simulation.

A list of them is a program: whatever is left out, the rest still means something.

Processes go by labels such as `a1`: node name and number, so that `a2` is another process under the
name of `a1`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What goes wrong at the next transaction of a task."""

    NONE = ""
    BROKEN = "its connection breaks before the transaction"
    COMMIT_FAILED = "COMMIT fails"
    COMMIT_LOST = "COMMIT takes effect, its answer is lost"


class Ending(StrEnum):
    """How a post ends."""

    OWN = "in a transaction of its own"
    COMMIT = "in a caller's transaction, committed"
    ROLLBACK = "in a caller's transaction, rolled back"
    SAVEPOINT = "half before, half in a savepoint that is rolled back, committed"


class Link(StrEnum):
    """What the entries of a post have in common with others."""

    NONE = ""
    KEY = "with the idempotency key"
    ORDER = "with the order key"
    AFTER = "after the last one"
    ORDER_AFTER = "with the order key, after the last one"
    GROUP = "as a sealed group"


@dataclass(frozen=True)
class Behaviour:
    """The handler's work on an event.

    It raises `fails` times, has `boundaries` in its midst, or kills its process.
    """

    fails: int = 0
    boundaries: int = 0
    poison: bool = False


@dataclass(frozen=True)
class Start:
    """A process begins, and takes part."""

    process: str
    stops: int | None = None

    def __str__(self) -> str:
        return f"{self.process} starts{_until(self.stops)}"


@dataclass(frozen=True)
class Post:
    """An application thread posts. `face` is bus or service; `delay` is for the service."""

    process: str
    face: str
    keys: tuple[int, ...]
    behaviour: Behaviour
    ending: Ending
    delay: float = 0.0
    stops: int | None = None
    fault: Fault = Fault.NONE
    link: Link = Link.NONE

    def __str__(self) -> str:
        keys = ", ".join(map(str, self.keys))
        told = [f"{self.process} posts {keys} to the {self.face} {self.ending.value}"]
        if self.link:
            told.append(self.link.value)
        if self.delay:
            told.append(f"due in {self.delay:g} s")
        if self.behaviour.fails:
            told.append(f"fails {self.behaviour.fails} times")
        if self.behaviour.poison:
            told.append("kills its process")
        return "; ".join(told) + _until(self.stops) + _with(self.fault)


@dataclass(frozen=True)
class Go:
    """A thread of a process goes on, or takes its next turn."""

    process: str
    task: str
    stops: int | None = None
    fault: Fault = Fault.NONE

    def __str__(self) -> str:
        return f"{self.process} goes on with {self.task}{_until(self.stops)}{_with(self.fault)}"


@dataclass(frozen=True)
class Pass:
    """Time passes; the processes that are awake beat and reap."""

    seconds: float
    awake: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.seconds:g} s pass; {', '.join(self.awake) or 'nobody'} beats and reaps"


@dataclass(frozen=True)
class Kill:
    """A process is killed where it stands."""

    process: str

    def __str__(self) -> str:
        return f"{self.process} is killed"


@dataclass(frozen=True)
class Leave:
    """A process stops in order."""

    process: str
    stops: int | None = None
    fault: Fault = Fault.NONE

    def __str__(self) -> str:
        return f"{self.process} leaves{_until(self.stops)}{_with(self.fault)}"


@dataclass(frozen=True)
class Outage:
    """The database goes away, or comes back."""

    begins: bool

    def __str__(self) -> str:
        return "the database goes away" if self.begins else "the database comes back"


@dataclass(frozen=True)
class Jump:
    """A process's idea of the date jumps."""

    process: str
    seconds: float

    def __str__(self) -> str:
        return f"the date of {self.process} jumps by {self.seconds:+g} s"


@dataclass(frozen=True)
class Change:
    """The user changes entries: `remove` or `retry` the entry of a key, or `truncate` history.

    Or the user pauses for `key` times 1.5 s, resumes, or limits the bus to `key` entries at once; 0
    takes the limit away.
    """

    process: str
    face: str
    what: str
    key: int = 0
    stops: int | None = None
    fault: Fault = Fault.NONE

    def __str__(self) -> str:
        about = "" if self.what in {"truncate", "resume"} else f" {self.key}"
        return (
            f"{self.process}: {self.what}{about} of the "
            f"{self.face}{_until(self.stops)}{_with(self.fault)}"
        )


Step = Start | Post | Go | Pass | Kill | Leave | Outage | Jump | Change


def _until(stops: int | None) -> str:
    return "" if stops is None else f", to its boundary {stops} from here"


def _with(fault: Fault) -> str:
    return f"; {fault.value}" if fault else ""

"""The text of every public call says what it takes, what it returns and what it raises."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import history_pipeline
import stickybus
from stickybus import testing

ROOMS = (
    *("stickybus", "bus", "notifications", "work_queue", "history_pipeline"),
    *("queue_core", "sql"),
)
PUBLIC = (stickybus, testing, history_pipeline)
DEPRECATED = {"InMemoryBus.register", "PersistentBus.register"}
CALLED_BY_SPARK = {"StickybusSource"}
RAISES_NOTHING = {
    "Job.wait",
    "PersistentBus.close",
    "NotificationService.close",
    "PersistentBus.healthy",
    "PersistentBus.unhealthy",
    "NotificationService.healthy",
    "NotificationService.unhealthy",
    "InMemoryBus.truncate_history",
    "InMemoryBus.unsubscribe",
    "PersistentBus.unsubscribe",
    "NotificationQueue.start",
    "NotificationQueue.stop",
    "NotificationService.queues",
    "WorkQueue.close",
    "DependencyError.of",
    *(f"Task.{name}" for name in ("change", "delete", "depend", "renew", "release")),
    *(f"Doc.{name}" for name in ("change", "delete", "depend")),
    *(f"DocSet.{name}" for name in ("depend", "renew", "release")),
    "Inspector.close",
    "Clock.now",
    "Clock.monotonic",
    "Clock.wait",
    "SystemClock.follow",
    "ManualClock.waiting",
    "RetryPolicy.next_date",
    "Codec.encode",
    "Codec.decode",
}


def _ours(found: object) -> bool:
    return str(getattr(found, "__module__", "")).partition(".")[0] in ROOMS


def calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public functions, and the public methods of public classes, without awaitable twins."""
    for name, found in ((name, getattr(room, name)) for room in PUBLIC for name in room.__all__):
        if inspect.isfunction(found):
            yield name, found
        elif isinstance(found, type) and name not in CALLED_BY_SPARK:
            for method, function in inspect.getmembers(found, inspect.isroutine):
                path = f"{name}.{method}"
                if not method.startswith("_") and _ours(function) and path not in DEPRECATED:
                    yield path, function


CALLS = dict(calls())


def test_the_calls_that_raise_nothing_exist() -> None:
    assert set(CALLS) >= RAISES_NOTHING


@pytest.mark.parametrize("call", CALLS)
def test_a_call_says_what_it_takes_returns_and_raises(call: str) -> None:
    function, text = CALLS[call], inspect.getdoc(CALLS[call]) or ""
    if call.endswith("_async"):
        assert text.startswith(
            f"Awaitable twin of `{call.partition('.')[2].removesuffix('_async')}`"
        )
        return
    if (other := re.match(r"As `(\w+\.\w+)`", text)) is not None:
        assert other.group(1) in CALLS
        return
    parameters = list(inspect.signature(function).parameters)
    if not inspect.ismethod(function) and "." in call and parameters[:1] == ["self"]:
        del parameters[0]
    assert _named(text, "Args") == parameters
    answers = inspect.get_annotations(function).get("return") not in {None, "None"}
    assert bool(re.search(r"^Returns:\n    \S", text, re.MULTILINE)) == answers
    assert bool(_named(text, "Raises")) == (call not in RAISES_NOTHING)


@pytest.mark.parametrize(
    "call", [call for call in CALLS if call.partition(".")[0] in stickybus.__all__]
)
def test_a_call_shows_its_defaults_by_no_address(call: str) -> None:
    assert not re.search(r"\bat 0x[0-9a-f]+", str(inspect.signature(CALLS[call])))


def _named(text: str, section: str) -> list[str]:
    """The names that a section explains."""
    found = re.search(rf"^{section}:\n((?:    .*\n|\n)*)", text + "\n", re.MULTILINE)
    return re.findall(r"^    ([\w.]+): \S", found.group(1), re.MULTILINE) if found else []

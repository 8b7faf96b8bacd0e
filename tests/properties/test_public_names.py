"""Whatever is passed to anything public, it works or raises what is documented.

That is a StickybusError, an error that its text names, or what an iterable of the caller's raises.

What is public is found by looking at `stickybus`, its test kit and `history_pipeline`: a new name,
or a new method, is tried here, is tried by `test_public_signatures.py`, or stands in `LEFT` with
the reason.
"""

from __future__ import annotations

import enum
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from sqlalchemy import make_url
from sqlalchemy.util import memoized_property

import history_pipeline
import stickybus
from history_pipeline import Audit, Period, TaskAudit, rolled_audit, rolled_task_audit
from queue_core.model.settings import Settings
from stickybus import (
    BusConfig,
    DocClaim,
    InMemoryBus,
    InsertDoc,
    ManualClock,
    NodeConfig,
    NotificationConfig,
    NotificationService,
    PersistentBus,
    Posting,
    StickybusError,
    SystemClock,
    WorkQueue,
    testing,
)
from tests.cloners import SQLiteFiles
from tests.pipeline.arrow_archive import write_archive
from tests.pipeline.sample import ended
from tests.pipeline.tasks import TABLE as TASKS
from tests.pipeline.tasks import finished
from tests.properties.hostile import CALLS, HOSTILE, READS, CallersError, Order

CONFIGS: tuple[type[Settings], ...] = (BusConfig, NotificationConfig, NodeConfig)
ROOMS = (
    *("stickybus", "bus", "notifications", "work_queue", "history_pipeline", "queue_core", "sql"),
)
BUILT_IN = (ValueError, RuntimeError, TimeoutError, OSError, KeyError)
"""What a call may raise besides, if its text names it."""
FLAGS = {"dry_run"}
"""Any value says yes or no, and each call opens a database: so only several() tries these."""
LEFT = {
    "NotificationQueue": "create_queue makes it",
    "Inspector": "inspect makes it",
    "Feed": "listen makes it",
    "WorkQueue.claim": "it waits as long as it is told to",
    "WorkQueue.claim_many": "as for WorkQueue.claim",
    "Feed.get": "it waits as long as it is told to",
    "EntryContext.queue_size": "the engine makes contexts; test_handler_facts.py asks them",
    "ExactlyOnceContext.queue_size": "as for EntryContext",
    "Posted": "the library makes it",
    **dict.fromkeys(
        ("FailWorker", "GiveUp", "MoveTask", "StopWorker"),
        "an error of Python's that handlers raise",
    ),
    "Job": "a worker makes it",
    "Job.claim_more": "as for Job; it claims as WorkQueue.claim_many does",
    "Job.claim_more_async": "as for Job.claim_more",
    "Job.wait": "it waits as long as it is told to",
    "Worker": "its queues are positional; test_workers.py tries what is not allowed",
    "Worker.run": "it runs until it is stopped; test_workers.py does",
    "Worker.stop": "as for Worker.run",
    **{
        f"{codec}.{call}": "the engine calls it; a codec may raise anything"
        for codec in ("BoundCodec", "CompressedCodec", "EncryptedCodec", "JsonCodec")
        for call in ("encode", "decode")
    },
    "InMemoryBus.register": "deprecated: what it calls is tried",
    "PersistentBus.register": "deprecated: what it calls is tried",
    "ManualClock.wait": "the engine calls it",
    "SystemClock.wait": "the engine calls it",
    "SystemClock.follow": "the engine calls it",
    "ImmediateRetries.next_date": "the engine calls it; a policy may raise anything",
    "ScheduledRetries.next_date": "the engine calls it; a policy may raise anything",
    "Circuit.next_date": "the engine calls it; a policy may raise anything",
    "ExponentialRetries.next_date": "the engine calls it; a policy may raise anything",
    **dict.fromkeys(
        ("stickybus_bus", "stickybus_clock", "stickybus_service", "stickybus_url"),
        "a fixture of pytest",
    ),
    **dict.fromkeys(
        (
            *("Archived", "ArchivedTask", "Audit", "Change", "Compacted", "Erased", "Expired"),
            *("Exported", "Replayed", "TaskAudit", "Verified"),
        ),
        "the library makes it",
    ),
    **dict.fromkeys(
        (
            *("archive_history", "audit", "compact_archive", "expire_archive", "read_archive"),
            *("read_history", "replay_archive", "verify_content"),
        ),
        "it needs Spark; test_pipeline_arguments.py tries what is not allowed",
    ),
    "open_session": "it starts Spark",
    **dict.fromkeys(
        (
            *("StickybusSource", "StickybusSource.name", "StickybusSource.reader"),
            *("StickybusSource.schema", "StickybusSource.streamReader", "StickybusSource.writer"),
        ),
        "Spark calls it",
    ),
}
"""What is not tried, and why."""


def public() -> dict[str, Any]:
    """Everything public that can be called, by name.

    Left out are the library's errors, sets of constants, and what users write themselves.
    """
    names = {name: getattr(stickybus, name) for name in stickybus.__all__}
    for room in (testing, history_pipeline):
        names |= {name: getattr(room, name) for name in room.__all__}
    return {
        name: found
        for name, found in names.items()
        if callable(found)
        and typing.get_origin(found) is None  # a type by another name
        and not (
            isinstance(found, type)
            and (
                issubclass(found, StickybusError | enum.Enum)
                or getattr(found, "_is_protocol", False)
            )
        )
    }


def calls() -> Iterator[tuple[str, str]]:
    """A public name, and one of its methods, or no text for the name itself."""
    tried = {(kind, method) for kind, methods in CALLS.items() for method in methods}
    for name, found in public().items():
        if name not in LEFT:
            yield name, ""
        if not isinstance(found, type):
            continue
        for method, function in inspect.getmembers(found, inspect.isroutine):
            ours = str(getattr(function, "__module__", "")).partition(".")[0] in ROOMS
            read = method in READS and found is not InMemoryBus
            if method.startswith("_") or not ours or method.endswith("_async") or read:
                continue
            if (found, method) not in tried and f"{name}.{method}" not in LEFT:
                yield name, method


@dataclass
class World:
    """What calls need: a database, and one object of each class with methods."""

    folder: Path
    url: str

    def __post_init__(self) -> None:
        self.bus = PersistentBus(
            self.url, BusConfig(handler_threads=1), metrics_registry=CollectorRegistry()
        )
        self.service = NotificationService(self.url, NotificationConfig(handler_threads=1))
        self.inspector = stickybus.inspect(self.url)
        self.work = WorkQueue(self.url, claimant="me")
        self.made: list[Any] = [self.bus, self.service, self.inspector, self.work]
        for one in (self.bus, self.service):
            one.listen("somebody else")  # an empty dict takes any key for a missing one
        self._names = iter(range(10**9))

    @memoized_property
    def archive(self) -> str:
        """The directory of an archive of entries and of tasks."""
        target = str(self.folder / "archive")
        write_archive(make_url(self.url), target, [[ended(1), ended(2)]])
        write_archive(make_url(self.url), target, [[finished(1), finished(2)]], TASKS)
        return target

    @memoized_property
    def figures(self) -> Audit:
        """Those of the archive."""
        return rolled_audit(archive=self.archive)

    @memoized_property
    def task_figures(self) -> TaskAudit:
        """Those of its tasks."""
        return rolled_task_audit(archive=self.archive)

    def object_of(self, kind: type) -> Any:
        """The one whose methods are called."""
        if kind is stickybus.NotificationQueue:
            return self.service.create_queue(
                "own", f"queue-{next(self._names)}", lambda _event: None
            )
        known: dict[type, Callable[[], Any]] = {
            WorkQueue: lambda: self.work,
            stickybus.Task: lambda: self.work.insert("queue"),
            stickybus.Doc: self._doc,
            stickybus.DocSet: lambda: self.work.claim_docs(DocClaim("namespace", "key"))[0],
            PersistentBus: lambda: self.bus,
            NotificationService: lambda: self.service,
            stickybus.Inspector: lambda: self.inspector,
            InMemoryBus: InMemoryBus,
            ManualClock: ManualClock,
            SystemClock: SystemClock,
            Audit: lambda: self.figures,
            TaskAudit: lambda: self.task_figures,
            Period: Period,
            **{config: config for config in (BusConfig, NotificationConfig, NodeConfig)},
        }
        return known[kind]()

    def _doc(self) -> stickybus.Doc:
        new = InsertDoc(namespace="namespace", key=f"key-{next(self._names)}")
        return self.work.modify(new).inserted_docs[0]

    def fitting(self, call: str, parameter: str) -> Any:
        """A value that works, for a parameter without a default, or whose default takes long."""
        values: dict[str, Any] = {
            "bound_seconds": 0.0,
            "count": 0,
            "database": self.url,
            "date": datetime(2200, 1, 1, tzinfo=UTC),
            "delay": 1.0,
            "event": Order,
            "full_name": f"shop:queue-{next(self._names)}",
            "handler": lambda _event: None,
            "hook": lambda _entry, _error: None,
            "offset_seconds": 0.0,
            "path": self.folder / "none.toml",
            "queue_name": f"queue-{next(self._names)}",
            "seconds": 1.0,
            "service_name": "shop",
            "timeout_seconds": 0.0,
            "url": self.url,
        }
        of_rows: dict[str, Any] = {"creating_owner": "", "lane": "", "codec": "json"}
        of_archives: dict[str, Callable[[], Any]] = {
            "archive": lambda: self.archive,
            "audit": lambda: self.figures,
            "day": lambda: "2026-03-01",
            "folder": lambda: self.folder,
            "ids": lambda: ["task-1"],
            "target": lambda: self.archive,
        }
        if parameter in of_archives:
            return of_archives[parameter]()
        return {**values, **of_rows}.get(parameter, f"some {parameter} of {call}")

    def call(self, name: str, method: str, /, **arguments: Any) -> None:
        """Call it, with what it needs besides."""
        found = public()[name]
        function = getattr(self.object_of(found), method) if method else found
        parameters = _parameters(found, function)
        needed = {
            one.name: self.fitting(name, one.name)
            for one in parameters
            if one.name in {"timeout_seconds", "archive"}
            or (one.default is one.empty and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD})
        }
        given = {**needed, **arguments}
        positional = [
            given.pop(one.name)
            for one in parameters
            if one.kind is one.VAR_POSITIONAL and one.name in given
        ]
        if callable(given.get("progress")):
            del given["progress"]  # what a function of the caller raises is the caller's
        answer = function(*positional, **given)
        if method in {"subscribe", "queue"} and answer is not None:
            answer(lambda _event: None)
        elif hasattr(answer, "close"):
            self.made.append(answer)

    def close(self) -> None:
        for made in reversed(self.made):
            made.close()


def _parameters(found: Any, function: Callable[..., Any]) -> list[inspect.Parameter]:
    """What it takes; options one by one."""
    parameters = list(inspect.signature(function).parameters.values())
    for config in CONFIGS:
        if function is config:
            return [_keyword(key) for key in config.model_fields]
    options = [one for one in parameters if one.kind is one.VAR_KEYWORD]
    is_class = isinstance(found, type) and function is found
    code = vars(found)["__init__"] if options and is_class else function
    names = {"AsyncConnection": object, "AsyncSession": object}
    keys = [
        key
        for one in options
        for spread in typing.get_args(typing.get_type_hints(code, localns=names)[one.name])
        for key in typing.get_type_hints(spread)
    ]
    return [one for one in parameters if one not in options] + [_keyword(key) for key in keys]


def _keyword(name: str) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)


def _documented(name: str, method: str) -> tuple[type[Exception], ...]:
    found = public()[name]
    text = inspect.getdoc(getattr(found, method) if method else found) or ""
    words = set(re.findall(r"\w+", text))  # a DuplicateKeyError is no KeyError
    return (StickybusError, CallersError, *(error for error in BUILT_IN if error.__name__ in words))


@pytest.fixture
def world(sqlite_files: SQLiteFiles, tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, str(sqlite_files.migrated(tmp_path / "public.db")))
    yield world
    world.close()


CALLED = sorted(calls())


@pytest.mark.parametrize(
    ("name", "method"), CALLED, ids=[".".join(filter(None, call)) for call in CALLED]
)
def test_a_public_name_raises_documented_errors_only(world: World, name: str, method: str) -> None:
    found = public()[name]
    function = getattr(world.object_of(found), method) if method else found
    parameters = [one.name for one in _parameters(found, function)]
    documented = _documented(name, method)
    for parameter in parameters:
        for value in () if parameter in FLAGS else HOSTILE:
            with suppress(*documented):
                world.call(name, method, **{parameter: value})

    combined = [
        one for one in parameters if one != "timeout_seconds"
    ]  # it may well wait for a century

    @settings(max_examples=20, suppress_health_check=list(HealthCheck), deadline=None)
    @given(
        places=st.dictionaries(
            st.sampled_from(combined), st.sampled_from(range(len(HOSTILE))), min_size=2
        )
    )
    def several(places: dict[str, int]) -> None:
        with suppress(*documented):
            world.call(
                name, method, **{parameter: HOSTILE[place] for parameter, place in places.items()}
            )

    if len(combined) > 1:
        several()
    seen = list[Any]()
    bus = PersistentBus(world.url, metrics_registry=CollectorRegistry())
    bus.subscribe(Order, seen.append)
    bus.resume()  # some of the values may have paused it
    bus.post_many([Posting(event=Order(7))])
    testing.drain(bus)
    bus.close()
    assert seen == [Order(7)]


def test_what_is_left_out_is_public() -> None:
    for name in LEFT:
        kind, _, method = name.partition(".")
        assert hasattr(public()[kind], method or "__call__")

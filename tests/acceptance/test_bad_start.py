"""Processes that start wrongly: after a fork, under a name that is taken, without a database."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import URL

from queue_core.errors import NodeNameTakenError
from queue_core.model.config import BusConfig
from queue_core.model.node_config import NodeConfig
from stickybus import PersistentBus
from tests import requirements as needs
from tests.contract.harness import Order, Recorder, eventually

_BOUND_SECONDS = 60
_FORK_WARNING = "ignore:This process:DeprecationWarning"
"""Python 3.12 and later rightly warn of a fork beside other threads, which these programs try."""

_PRELUDE = """
import json, os, sys, threading
from dataclasses import dataclass
from stickybus import (
    BusConfig, ForkedError, NodeConfig, NotificationConfig, NotificationService, PersistentBus
)

url = sys.argv[1]

@dataclass
class Order:
    number: int

def tell(**facts):
    print(json.dumps(facts), flush=True)

def open_files():
    return len(os.listdir("/proc/self/fd"))

def in_child(work):
    pid = os.fork()
    if not pid:
        try:
            work()
        except BaseException as error:
            tell(unexpected=repr(error))
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def _run(url: URL, script: str) -> list[dict[str, Any]]:
    """Return the lines that a program printed.

    A warning of a leak is an error, and so is any word on stderr.
    """
    done = subprocess.run(
        [
            *(sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-W", _FORK_WARNING),
            *("-c", _PRELUDE + script),
            url.render_as_string(hide_password=False),
        ],
        capture_output=True,
        text=True,
        timeout=_BOUND_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert not [line for line in told if "unexpected" in line]
    return told


_EVERY_CALL = """
bus = PersistentBus(url, BusConfig(node_name="parent", handler_threads=2))
service = NotificationService(url, NotificationConfig(node_name="parent", handler_threads=2))
done = threading.Semaphore(0)
bus.subscribe(Order, lambda order: done.release())
queue = service.create_queue("shop", "bills", lambda order: done.release(), event_types=[Order])
with bus, service:
    bus.post(Order(1))
    assert done.acquire(timeout=20)
    scheduled = queue.schedule(Order(1), delay=3600)
    before = open_files()

    def child():
        calls = {
            "post": lambda: bus.post(Order(2)),
            "post_many": lambda: bus.post_many([Order(2)]),
            "find": bus.find,
            "history": bus.history,
            "ready_count": bus.ready_count,
            "truncate_history": bus.truncate_history,
            "retry": lambda: bus.retry(1),
            "start": bus.start,
            "schedule": lambda: queue.schedule(Order(2), delay=0),
            "update": lambda: queue.update(scheduled, event=Order(2)),
            "remove": lambda: queue.remove(scheduled),
            "recur": lambda: queue.recur("daily", Order(2), every=60),
            "recurring": queue.recurring,
            "service start": service.start,
        }
        for what, call in calls.items():
            try:
                call()
                tell(what=what, error=None)
            except Exception as error:
                started = getattr(error, "started_pid", 0)
                tell(what=what, error=type(error).__name__, text=str(error), started=started)

    in_child(child)
    tell(parent=os.getpid(), more_files=open_files() - before)
    bus.post(Order(3))
    assert done.acquire(timeout=20)
    queue.schedule(Order(3), delay=0)
    assert done.acquire(timeout=20)
"""


def test_every_call_in_a_forked_child_says_so_and_the_parent_goes_on(database_url: URL) -> None:
    *calls, parent = _run(database_url, _EVERY_CALL)
    assert len(calls) == 14
    for call in calls:
        assert call["error"] == "ForkedError", call
        assert "after a fork" in call["text"]
        assert "Nothing was written" in call["text"]
        assert call["started"] == parent["parent"]
    # The parent's loops may have opened connections meanwhile; each of the calls would have shown.
    assert parent["more_files"] < len(calls) // 2


_LEAVES_BLOCK = """
bus = PersistentBus(url, BusConfig(node_name="parent", handler_threads=2))
running, go_on, done = threading.Event(), threading.Event(), threading.Event()
runs = []

def handle(order, context):
    runs.append((order.number, context.attempt))
    if order.number == 1:
        running.set()
        assert go_on.wait(20)
    done.set()

bus.subscribe(Order, handle)
with bus:
    held = bus.post(Order(1))
    assert running.wait(20)

    def child():
        bus.stop()
        bus.close()
        bus.__exit__(None, None, None)
        tell(child="left")

    in_child(child)
    (entry,) = bus.find()
    live = bus._engine.lifecycle.running
    tell(owner=entry.processing_owner, state=entry.processing_state, live=live)
    go_on.set()
    assert done.wait(20)
    done.clear()
    bus.post(Order(2))
    assert done.wait(20)
tell(runs=runs)
"""


def test_a_forked_child_that_leaves_its_parents_block_takes_nothing_from_the_parent(
    database_url: URL,
) -> None:
    """Its entries stay claimed, its lease holds, and its connections stay open."""
    left, entry, ended = _run(database_url, _LEAVES_BLOCK)
    assert left == {"child": "left"}
    assert entry == {"owner": "parent", "state": "IN_PROCESSING", "live": True}
    assert ended == {"runs": [[1, 1], [2, 1]]}


_OWN_BUS = """
of_parent = BusConfig(node_name="parent", handler_threads=2, node=NodeConfig(lease_seconds=5.0))
parent = PersistentBus(url, of_parent)
stop = threading.Event()

def post_all_the_time():
    while not stop.is_set():
        parent.post({"by": "parent"}, event_name="noise")

parent.subscribe("noise", lambda event: None)
posting = threading.Thread(target=post_all_the_time)

def child():
    from stickybus import NodeNameTakenError
    try:
        same = PersistentBus(url, of_parent)
    except ForkedError as error:
        tell(forked=str(error), started=error.started_pid == os.getppid())
        return
    try:
        same.start()
    except NodeNameTakenError as error:
        tell(refused=error.node_name)
    same.close()
    done = threading.Event()
    own = PersistentBus(url, BusConfig(node_name="child", name="of the child", handler_threads=2))
    own.subscribe(Order, lambda order: done.set())
    with own:
        own.post(Order(1))
        assert done.wait(20)
        tell(node=own._engine.lifecycle.name, leased=own._engine.lifecycle.running)

with parent:
    posting.start()
    for _ in range(3):
        in_child(child)
    stop.set()
    posting.join()
"""


@needs.server
def test_a_bus_made_in_the_child_works_whatever_the_parent_was_doing(database_url: URL) -> None:
    """The parent's nodes and connections are not inherited."""
    told = _run(database_url, _OWN_BUS)
    assert told == [{"refused": "parent"}, {"node": "child", "leased": True}] * 3


@needs.sqlite
def test_a_child_can_not_open_the_sqlite_file_that_its_parent_has_open(database_url: URL) -> None:
    """The child inherits SQLite's record of locks, and would wait for a thread that it lacks."""
    told = _run(database_url, _OWN_BUS)
    assert [line["started"] for line in told] == [True] * 3
    assert all("spawn or exec" in line["forked"] for line in told)


_AFTER_CLOSE = """
first = PersistentBus(url, BusConfig(node_name="parent", handler_threads=2))
first.subscribe(Order, lambda order: None)
with first:
    first.post(Order(1))

def child():
    done = threading.Event()
    own = PersistentBus(url, BusConfig(node_name="child", handler_threads=2))
    own.subscribe(Order, lambda order: done.set())
    with own:
        own.post(Order(2))
        assert done.wait(20)
        tell(delivered=True)

in_child(child)
"""


def test_a_child_forked_when_all_is_closed_starts_as_any_process(database_url: URL) -> None:
    assert _run(database_url, _AFTER_CLOSE) == [{"delivered": True}]


_HOLDER = """
config = BusConfig(node_name="the one", handler_threads=1, node=NodeConfig(lease_seconds=5.0))
bus = PersistentBus(url, config)
bus.start()
tell(pid=os.getpid())
sys.stdin.read()
bus.close()
"""


def test_a_node_name_that_another_process_holds_is_refused_and_free_when_it_has_stopped(
    database_url: URL,
) -> None:
    config = BusConfig(node_name="the one", handler_threads=1, node=NodeConfig(lease_seconds=5.0))
    bus = PersistentBus(database_url, config)
    recorder = Recorder()
    bus.subscribe(Order, recorder)
    command = [
        sys.executable,
        "-c",
        _PRELUDE + _HOLDER,
        database_url.render_as_string(hide_password=False),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        pid = json.loads(holder.stdout.readline())["pid"]
        with pytest.raises(NodeNameTakenError, match=f"pid {pid}") as refused:
            bus.start()
        assert refused.value.node_name == "the one"
        assert "Nothing was started" in str(refused.value)
        # Posting goes on: whoever has no lane posts for any node.
        bus.post(Order(1))
        holder.stdin.close()
        assert holder.wait(_BOUND_SECONDS) == 0
    with bus:
        assert recorder.wait() == [Order(1)]
        eventually(bus.history, "it is written")

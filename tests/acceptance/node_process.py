"""A node as a process of its own, and the handle by which a test drives, freezes and kills it.

As a program: `python -m tests.acceptance.node_process URL NAME [LEASE]` runs a bus; it reads
commands from standard input (`post N …`, `fill COUNT`, `go`, `stop`) and says what happens, one
line each (`ready`, `posted N`, `filled COUNT`, `run N`, `done N`, `error …`). Orders below zero run
until `go`. `keyed N …` posts with limit keys, of which every third order has the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL

from stickybus import (
    BusConfig,
    ImmediateRetries,
    NodeConfig,
    PersistentBus,
    Posting,
    StickybusError,
)

LEASE_SECONDS: Final = 2.0
SETTINGS: Final[dict[str, Any]] = {
    "poll_interval_seconds": 0.5,
    "handler_threads": 4,
    "retry": ImmediateRetries(3),
}
FILLED_AT_ONCE: Final = 1_000
KEYS: Final = 3
_BOUND_SECONDS: Final = 90.0
_ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Order:
    number: int


def bus_on(url: URL | str, name: str, lease_seconds: float = LEASE_SECONDS) -> PersistentBus:
    """A bus with a short lease, in which a node beats eight times."""
    node = NodeConfig(
        lease_seconds=lease_seconds,
        beat_interval_seconds=lease_seconds / 8,
        reap_period_seconds=0.5,
    )
    return PersistentBus(url, BusConfig(node_name=name, node=node, **SETTINGS))


def key_of(number: int) -> str:
    """The limit key of an order."""
    return f"key-{number % KEYS}"


def keyed(number: int) -> Posting:
    """An order with its limit key."""
    return Posting(event=Order(number), limit_key=key_of(number))


class NodeProcess:
    """A running node, of the checkout in `root`."""

    def __init__(self, url: URL, name: str, root: Path = _ROOT, *options: str) -> None:
        self.name = name
        address = url.render_as_string(hide_password=False)
        self.process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, address, name, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self._lines.append(line.strip())
                self._changed.notify_all()

    @property
    def lines(self) -> list[str]:
        with self._changed:
            return list(self._lines)

    def wait(self, *lines: str) -> None:
        """Block until it has said each of `lines`."""
        with self._changed:
            came = self._changed.wait_for(lambda: set(lines) <= set(self._lines), _BOUND_SECONDS)
            assert came, f"{self.name} said {self._lines}, not {lines}"

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def freeze(self, harmless: Callable[[], bool]) -> None:
        """SIGSTOP, at a moment at which `harmless` holds once it stands still."""
        deadline = time.monotonic() + _BOUND_SECONDS
        while True:
            self.process.send_signal(signal.SIGSTOP)
            os.waitpid(self.process.pid, os.WUNTRACED)
            if harmless():
                return
            assert time.monotonic() < deadline, f"{self.name} never stood still harmlessly"
            self.thaw()

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue


@contextmanager
def node_process(
    url: URL, name: str, root: Path = _ROOT, *, lease_seconds: float | None = None
) -> Iterator[NodeProcess]:
    """A node that has started, of the checkout in `root`."""
    node = NodeProcess(url, name, root, *([] if lease_seconds is None else [str(lease_seconds)]))
    try:
        node.wait("ready")
        yield node
    finally:
        node.close()


def main(url: str, name: str, lease_seconds: str = str(LEASE_SECONDS)) -> None:
    """Run the node until `stop`, or the end of standard input."""
    released = threading.Event()
    lock = threading.Lock()

    def say(line: str) -> None:
        with lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    bus = bus_on(url, name, float(lease_seconds))

    @bus.subscribe(Order)
    def handle(order: Order) -> None:
        say(f"run {order.number}")
        if order.number < 0:
            released.wait(_BOUND_SECONDS)
        say(f"done {order.number}")

    try:
        bus.start()
    except StickybusError as error:
        say("ready")
        say(f"error {type(error).__name__}")
        return
    say("ready")
    for command in sys.stdin:
        word, *numbers = command.split()
        if word == "go":
            released.set()
        elif word == "stop":
            break
        elif word == "fill":
            for first in range(0, int(numbers[0]), FILLED_AT_ONCE):
                bus.post_many([Order(number) for number in range(first, first + FILLED_AT_ONCE)])
            say(f"filled {numbers[0]}")
        else:
            posting = keyed if word == "keyed" else Order
            bus.post_many([posting(int(number)) for number in numbers])
            for number in numbers:
                say(f"posted {number}")
    bus.close()
    say("stopped")


if __name__ == "__main__":
    main(*sys.argv[1:])

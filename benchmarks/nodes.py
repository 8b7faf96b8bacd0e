"""Nodes in other processes: several on one backlog, an idle one, one with a large backlog."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL

from benchmarks.databases import Target
from benchmarks.floor import Bare, bare, fill, move_rate
from benchmarks.measurement import Measurement
from benchmarks.workload import (
    COMPLETION_SECONDS,
    FLOOR,
    Sizes,
    VerificationError,
    compared,
    median_ratio,
    until,
    verify_counts,
)
from queue_core.model.config import BusConfig
from queue_core.model.mode import Mode

TABLE = BusConfig().table
PROCESSES = (1, 2, 4, 8, 16)
THREADS = 32
"""Of all processes together, so that only their number differs."""
SETTLE_SECONDS = 3.0
"""From an idle node's start to the first count: the start's own statements are over by then."""
"""Between questions to a node while it works."""
ROOT = Path(__file__).resolve().parents[1]


class AskedProcess:
    """A handle on a module that reads questions a line, and answers each with a line of JSON."""

    def __init__(self, module: str, url: URL, *arguments: str) -> None:
        text = url.render_as_string(hide_password=False)
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, text, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def tell(self, question: str) -> None:
        """Ask, without waiting for the answer."""
        if self.process.stdin is None:
            raise VerificationError("the node has no input")
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the oldest question. Raises VerificationError if the process has ended."""
        line = self.process.stdout.readline() if self.process.stdout is not None else ""
        if not line:
            raise VerificationError("a node's process has ended")
        return json.loads(line)

    def ask(self, question: str) -> Any:
        """Ask and wait for the answer."""
        self.tell(question)
        return self.answer()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


class BusProcess(AskedProcess):
    """A handle on `benchmarks.bus_process`."""

    def __init__(self, url: URL, mode: Mode, *, timed: bool) -> None:
        super().__init__("benchmarks.bus_process", url, mode.value, "timed" if timed else "counted")

    def wait_until_handled(self, entries: int) -> None:
        """Return once its handler was called so often."""
        wait_until_handled([self], entries)


@contextmanager
def bus_process(url: URL, mode: Mode, *, timed: bool = False) -> Iterator[BusProcess]:
    """A node's process, not started yet as a node."""
    node = BusProcess(url, mode, timed=timed)
    try:
        yield node
    finally:
        node.close()


def wait_until_handled(members: Sequence[BusProcess], entries: int) -> list[dict[str, Any]]:
    """Look until nodes have handled `entries` together and written that.

    Returns the last answer of each.
    """

    def usages_in_the_end() -> list[dict[str, Any]]:
        usages = [node.ask("usage") for node in members]
        handled = sum(usage["handled"] for usage in usages)
        written = not any(usage["held"] for usage in usages)
        return usages if handled >= entries and written else []

    return until(usages_in_the_end, f"all of {entries} entries are handled")


def nodes(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """One backlog that any node may run (mode POLLING), handled by 1 to 16 processes.

    All of them together have as many threads. Processes with nothing but the driver do the same
    beside them, which tells what the machine allows.
    """
    entries, counts = sizes.entries(50_000), sizes.processes(PROCESSES)
    with target.fresh() as url, ExitStack() as running:
        connection = running.enter_context(bare(url))
        members = [
            running.enter_context(bus_process(url, Mode.POLLING)) for _ in range(max(counts))
        ]
        drivers = [
            running.enter_context(closing(AskedProcess("benchmarks.bare_process", url)))
            for _ in range(max(counts))
        ]
        names = {
            count: f"drain rate, {count} process{'es' if count > 1 else ''}" for count in counts
        }
        bare_names = {count: f"{name}, driver" for count, name in names.items()}
        works = {
            names[count]: partial(_filled_rate, connection, members[:count], entries)
            for count in counts
        } | {
            bare_names[count]: partial(_bare_rate, connection, drivers[:count], entries)
            for count in counts
        }
        _ask_all(
            members, "reset"
        )  # none of them still starts while the first round's floor is measured
        settings: dict[str, Any] = {
            "entries": entries,
            "mode": Mode.POLLING.value,
            "threads": THREADS,
        }
        rates = dict[str, list[float]]()
        floor = {FLOOR: partial(move_rate, target, entries)}
        for measurement in compared("nodes", target, sizes, {**floor, **works}, **settings):
            rates[measurement.metric] = measurement.settings["rates"]
            yield measurement
        settings["rounds"] = sizes.rounds
        for who, named in (("", names), (", driver", bare_names)):
            for count in counts[1:]:
                ratio = median_ratio(rates[named[count]], rates[named[1]])
                metric = f"{count} processes to 1{who}"
                yield Measurement("nodes", target.name, metric, ratio, "x", settings)
            rounds = zip(*(rates[name] for name in named.values()), strict=True)
            ratio = statistics.median(min(one) / max(one) for one in rounds)
            metric = f"slowest number to the fastest{who}"
            yield Measurement("nodes", target.name, metric, ratio, "x", settings)
        verify_counts(url, TABLE, waiting=0, ended=sizes.rounds * len(works) * entries)


def _filled_rate(connection: Bare, members: Sequence[BusProcess], entries: int) -> float:
    fill(connection, entries)
    _ask_all(members, f"threads {THREADS // len(members)}")
    return shared_rate(members, entries)


def shared_rate(members: Sequence[BusProcess], entries: int) -> float:
    """Entries a second that nodes handle together of a backlog that stands there."""
    _ask_all(members, "reset")
    _ask_all(members, "start")
    usages = [usage for usage in wait_until_handled(members, entries) if usage["handled"]]
    ended = time.perf_counter()
    _ask_all(members, "stop")
    # Linux's clock for intervals is one for all processes.
    seconds: float = ended - min(usage["first"] for usage in usages)
    return entries / seconds


def _bare_rate(connection: Bare, drivers: Sequence[AskedProcess], entries: int) -> float:
    fill(connection, entries)
    answers = _ask_all(drivers, "drain")
    moved = sum(answer["moved"] for answer in answers)
    if moved != entries:
        raise VerificationError(f"drivers moved {moved} of {entries} entries")
    seconds: float = max(one["last"] for one in answers) - min(one["first"] for one in answers)
    return entries / seconds


def _ask_all(members: Sequence[AskedProcess], question: str) -> list[Any]:
    """Ask all before the first has answered."""
    for member in members:
        member.tell(question)
    return [member.answer() for member in members]


def idle(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Measure the statements and the CPU of a node with nothing to do.

    A look at the SQLite file for other processes' commits is not a statement.
    """
    seconds = sizes.seconds(60, 5)
    with target.fresh() as url, bus_process(url, BusConfig().mode) as node:
        node.ask("listen")
        node.ask("start")
        time.sleep(SETTLE_SECONDS)
        before = node.ask("usage")
        time.sleep(seconds)
        after = node.ask("usage")
        node.ask("stop")
        verify_counts(url, TABLE, waiting=0, ended=0)
    elapsed = after["at"] - before["at"]
    settings = {"seconds": round(elapsed, 1)}
    for metric, key, unit, factor in (
        ("statements of an idle node", "statements", "1/s", 1.0),
        ("transactions of an idle node", "commits", "1/s", 1.0),
        ("CPU of an idle node", "cpu_seconds", "% of a core", 100.0),
    ):
        value = (after[key] - before[key]) / elapsed * factor
        yield Measurement("idle", target.name, metric, value, unit, settings)


def memory(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """The memory and time of a node's process while it drains a large backlog, and their growth."""
    entries = sizes.standing(1_000_000, 2_000)
    looks: list[tuple[int, float]] = []
    with target.fresh() as url:
        with bare(url) as connection:
            fill(connection, entries)
        with bus_process(url, BusConfig().mode) as node:
            empty = node.ask("usage")["rss_mb"]
            node.ask("start")

            def is_drained() -> bool:
                usage = node.ask("usage")
                looks.append((usage["handled"], usage["rss_mb"]))
                return looks[-1][0] >= entries

            until(is_drained, f"all of {entries} entries are handled", 4 * COMPLETION_SECONDS)
            peak = node.ask("usage")["peak_rss_mb"]
            node.ask("stop")
        verify_counts(url, TABLE, waiting=0, ended=entries)
    # A tenth into it every pool and cache is filled.
    early = next(rss for handled, rss in looks if handled * 10 >= entries)
    settings = {"backlog": entries, "rss_before_start_mb": empty}
    for metric, value in (
        ("peak memory", peak),
        ("growth after the first tenth", looks[-1][1] - early),
    ):
        yield Measurement("memory", target.name, metric, value, "MB", settings)

"""The work queue's service: a call over HTTP and gRPC, beside the same call in the library."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from sqlalchemy import URL

from benchmarks.databases import Target
from benchmarks.floor import bare
from benchmarks.measurement import Measurement, percentile
from benchmarks.nodes import ROOT
from benchmarks.tasks import QUEUE, fill, work_on
from benchmarks.workload import Sizes, VerificationError
from work_queue.work_queue import WorkQueue

T = TypeVar("T")
LIBRARY = "library"
WIRES = ("http", "grpc")
WARM_UP = 5
"""Turns before the first that counts: connections are open by then."""


def service(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """The time that a service adds to a read of the clock, a claim and a delete by one client.

    The callers take turns at each call, so that other work of the machine meets all of them.
    """
    turns = sizes.entries(2_000, 20)
    with target.fresh() as url, ExitStack() as opened:
        connection = opened.enter_context(bare(url))
        fill(connection, (turns + WARM_UP) * (1 + len(WIRES)))
        callers = {LIBRARY: opened.enter_context(work_on(url))}
        addresses = opened.enter_context(_served(url))
        for wire in WIRES:
            callers[wire] = opened.enter_context(WorkQueue(addresses[wire]))
        _timed(callers, WARM_UP)
        took = _timed(callers, turns)
        if callers[LIBRARY].queues():
            raise VerificationError(f"tasks are left: {callers[LIBRARY].queues()}")
    settings = {"turns": turns}
    for call in dict.fromkeys(call for call, _ in took):
        own, *there = (percentile(took[call, caller], 0.5) * 1e3 for caller in callers)
        yield Measurement("service", target.name, f"{call}, {LIBRARY}, p50", own, "ms", settings)
        for wire, value in zip(WIRES, there, strict=True):
            for what, figure, unit in (
                ("", value, "ms"),
                (", more than the library", value - own, "ms"),
                (", to the library", value / own, "x"),
            ):
                metric = f"{call}, {wire}, p50{what}"
                yield Measurement("service", target.name, metric, figure, unit, settings)


@contextmanager
def _served(url: URL) -> Iterator[Mapping[str, str]]:
    """The addresses of a service, by wire."""
    command = [sys.executable, "-c", "from stickybus.cli import main; main()", "serve"]
    options = ["--json", "--log-level=error", "--http-port=0", "--grpc-port=0"]
    process = subprocess.Popen(
        [*command, *options, "--url", url.render_as_string(hide_password=False)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        told = ""
        while not told.endswith("}\n"):
            if process.stdout is None or not (line := process.stdout.readline()):
                raise VerificationError("the service did not start")
            told += line
        addresses: list[str] = json.loads(told)["addresses"]
        yield {address.partition(":")[0]: address for address in addresses}
    finally:
        process.terminate()
        process.communicate()


def _timed(callers: Mapping[str, WorkQueue], turns: int) -> dict[tuple[str, str], list[float]]:
    """The seconds of each call, by call and caller."""
    took = defaultdict[tuple[str, str], list[float]](list)

    def timed(call: str, caller: str, made: Callable[..., T], *arguments: Any) -> T:
        start = time.perf_counter()
        answer = made(*arguments)
        took[call, caller].append(time.perf_counter() - start)
        return answer

    for turn in range(turns):
        for caller in list(callers)[:: -1 if turn % 2 else 1]:
            work = callers[caller]
            timed("time", caller, work.time)
            task = timed("try_claim", caller, work.try_claim, QUEUE)
            if task is None:
                raise VerificationError("nothing was claimed of a queue that has tasks")
            timed("delete", caller, work.modify, task.delete())
    return took

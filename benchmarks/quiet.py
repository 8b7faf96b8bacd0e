"""The first entry after a quiet time, which another process posts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from benchmarks.databases import Target
from benchmarks.measurement import Measurement
from benchmarks.nodes import bus_process
from benchmarks.workload import WARM_UP, Sizes, Ticked, run_on
from queue_core.model.config import BusConfig
from queue_core.model.mode import Mode

QUIET_SECONDS = 4.7
"""More than a poll interval, and no multiple of it: polls must not keep step with the posts."""


def quiet(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """From the commit of an entry here to its start in another process that had nothing to do."""
    bursts = sizes.entries(20, 1, telling=4)
    with run_on(target, BusConfig(mode=Mode.POLLING)) as run:
        with bus_process(run.bus._engine.database.url, Mode.POLLING, timed=True) as node:
            node.ask("start")
            run.load(WARM_UP)
            node.wait_until_handled(WARM_UP)
            committed_at = list[float]()
            for number in range(bursts):
                time.sleep(QUIET_SECONDS)
                run.posted.append(run.bus.post(Ticked(number)))
                committed_at.append(time.perf_counter())
                node.wait_until_handled(WARM_UP + number + 1)
            started_at = node.ask("times")
            node.ask("stop")
        run.verify()
    took = [max(0.0, started_at[str(number)] - at) * 1e3 for number, at in enumerate(committed_at)]
    settings = {"entries": bursts, "quiet_seconds": QUIET_SECONDS, "milliseconds": took}
    for name, value in (("median", statistics.median(took)), ("longest", max(took))):
        metric = f"commit to start elsewhere after a quiet time, {name}"
        yield Measurement("quiet", target.name, metric, value, "ms", settings)

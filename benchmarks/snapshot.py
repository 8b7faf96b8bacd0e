"""Traffic at a steady rate while another session holds a snapshot for long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from prometheus_client import CollectorRegistry

from benchmarks.databases import Target
from benchmarks.floor import bare
from benchmarks.measurement import Measurement, percentile
from benchmarks.workload import Run, Sizes, Ticked, paced, run_on
from queue_core.metrics import Metrics
from queue_core.model.config import BusConfig
from queue_core.model.mode import Mode

RATE = 1_000
BATCH = 10
"""Entries of one `post_many`."""
SHARE = 0.1
"""Of the time under the snapshot: the first tenth is compared with the last, and with before."""


class Claims(Metrics):
    """Metrics that also keep how long each claim took, in seconds.

    `along`: claims go along with finishes, as they do on SQLite: those count, too.
    """

    def __init__(self, *, along: bool) -> None:
        super().__init__("benchmark", CollectorRegistry())
        self.seconds = list[float]()
        self._names = {"claim", "finish"} if along else {"claim"}

    def took(self, name: str, seconds: float) -> None:
        """See `Metrics`."""
        if name in self._names:
            self.seconds.append(seconds)


def watched_claims(run: Run) -> Claims:
    """The claims of a run from now on."""
    engine = run.bus._engine
    claims = Claims(along=engine.database.dialect.capabilities.one_writer)
    engine.lifecycle.claimer.metrics = engine.lifecycle.finisher.metrics = claims
    return claims


@dataclass(frozen=True)
class _Window:
    """Some time of the traffic: entries handled a second, and the time of slow claims."""

    rate: float
    claim_p99_ms: float


class _Traffic:
    """Posts at the rate, in one go from the first window to the last."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._handled = 0
        self._claims = watched_claims(run)

    def handle(self, event: Ticked) -> None:
        """The handler."""
        self._handled += 1
        self._run.handle(event)

    def window(self, seconds: float) -> _Window:
        """Post for `seconds`, each batch at its planned time however late the ones before were."""
        run, begin, before = self._run, time.perf_counter(), self._handled
        self._claims.seconds = []
        for number in paced(round(seconds * RATE / BATCH), RATE / BATCH):
            run.posted += run.bus.post_many([Ticked(number)] * BATCH)
        rate = (self._handled - before) / (time.perf_counter() - begin)
        return _Window(rate, percentile(self._claims.seconds, 0.99) * 1e3)


def snapshot(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Post and handle 1,000 entries a second, without and with a snapshot that a session holds.

    Its full size is 30 minutes under the snapshot. Any node may run the entries, so all are
    claimed.
    """
    seconds = sizes.seconds(1_800, 5)
    part = seconds * SHARE
    with run_on(target, BusConfig(mode=Mode.POLLING)) as run:
        traffic = _Traffic(run)
        run.start(traffic.handle)
        traffic.window(part)  # warm
        before = traffic.window(part)
        with bare(run.bus._engine.database.url) as other:
            other.hold_snapshot()
            first = traffic.window(part)
            traffic.window(seconds - 2 * part)
            last = traffic.window(part)
        run.wait()
        run.verify()
    settings = {"seconds": round(seconds), "rate": RATE, "mode": Mode.POLLING.value}
    windows = (("before it", before), ("at its begin", first), ("at its end", last))
    for metric, unit, of in (
        ("handled", "1/s", attrgetter("rate")),
        ("claim, p99", "ms", attrgetter("claim_p99_ms")),
    ):
        values = [of(window) for _, window in windows]
        for (when, _), value in zip(windows, values, strict=True):
            yield Measurement("snapshot", target.name, f"{metric}, {when}", value, unit, settings)
        ratio = values[-1] / values[0]
        yield Measurement("snapshot", target.name, f"{metric}, end to before", ratio, "x", settings)

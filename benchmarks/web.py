"""A web service under load: each request posts in its transaction, beside two plain INSERTs."""

from __future__ import annotations

import http.client
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from sqlalchemy import URL, create_engine

from benchmarks.databases import Target
from benchmarks.measurement import Measurement, percentile
from benchmarks.nodes import ROOT, TABLE
from benchmarks.outbox import metadata
from benchmarks.workload import (
    FLOOR,
    Sizes,
    VerificationError,
    alternating,
    median_ratio,
    until,
    verify_counts,
)

CLIENTS = 20
WARM_UP = 5
"""Requests of each client before the clock starts."""


@dataclass(frozen=True)
class _Served:
    """Requests a second, and the seconds that the slowest of a hundred requests took."""

    rate: float
    slowest: float


_RATE, _SLOWEST = attrgetter("rate"), attrgetter("slowest")


def web(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """20 clients send requests to a service of one process, in which the bus runs, too.

    The floor is a request that writes two plain rows.
    """
    requests = sizes.entries(10_000, CLIENTS, telling=10 * CLIENTS) // CLIENTS * CLIENTS
    with target.fresh() as url:
        engine = create_engine(url)
        metadata.create_all(engine)
        engine.dispose()
        with _service(url) as port:
            works = {
                FLOOR: partial(_served, port, "/plain", requests),
                "a post in each request": partial(_served, port, "/post", requests),
            }
            found = alternating(sizes.rounds, works)
            _wait(port)
        posts = sizes.rounds * (requests + WARM_UP * CLIENTS)
        verify_counts(url, TABLE, waiting=0, ended=posts)
    settings = {"requests": requests, "clients": CLIENTS, "rounds": sizes.rounds}
    for metric, unit, factor, of in (
        ("requests with a post", "1/s", 1.0, _RATE),
        ("request with a post, p99", "ms", 1e3, _SLOWEST),
    ):
        floor, posting = ([factor * of(one) for one in found[name]] for name in works)
        ratio = median_ratio(posting, floor)
        value = statistics.median(posting)
        yield Measurement("web", target.name, metric, value, unit, settings, ratio)


@contextmanager
def _service(url: URL) -> Iterator[int]:
    """The port of a service that runs while the block does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.web_process", url.render_as_string(hide_password=False)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise VerificationError("the web service did not start")
        yield int(line)
    finally:
        process.communicate()


def _served(port: int, path: str, requests: int) -> _Served:
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(lambda _: _client(port, path, WARM_UP), range(CLIENTS)))
        start = time.perf_counter()
        each = [requests // CLIENTS] * CLIENTS
        seconds = [one for took in clients.map(partial(_client, port, path), each) for one in took]
        rate = requests / (time.perf_counter() - start)
    return _Served(rate, percentile(seconds, 0.99))


def _client(port: int, path: str, requests: int) -> list[float]:
    """Send requests one after the other, and return how many seconds each took."""
    connection, took = http.client.HTTPConnection("127.0.0.1", port), list[float]()
    for _ in range(requests):
        start = time.perf_counter()
        connection.request("POST", path)
        response = connection.getresponse()
        response.read()
        took.append(time.perf_counter() - start)
        if response.status != http.HTTPStatus.OK:
            raise VerificationError(f"{path} was answered by {response.status}")
    connection.close()
    return took


def _wait(port: int) -> None:
    """Return once the service holds no entry any more."""
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:

        def holds_none() -> bool:
            connection.request("GET", "/held")
            return connection.getresponse().read() == b"0"

        until(holds_none, "all outcomes are written")

"""Other libraries on the same machine in the same rounds.

All do the same no-op work, and only durably finished jobs count.

Each with the best settings that its documentation gives. A peer that isn't installed (the extra
`bench`; Redis's server for Celery) is left out.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import msgspec
from sqlalchemy import URL

from benchmarks.celery_process import (
    CELERY_CONCURRENCY,
    CELERY_PREFETCH_MULTIPLIER,
    CELERY_QUEUE,
    CELERY_TASK,
    CELERY_UNACKED,
    CELERY_WORKER,
    CeleryWorker,
    celery_application,
)
from benchmarks.databases import Target
from benchmarks.floor import bulk_rate, move_rate
from benchmarks.measurement import Measurement
from benchmarks.rates import bulk_post_rate, drain_rate
from benchmarks.workload import (
    COMPLETION_SECONDS,
    FLOOR,
    POST_MANY,
    Sizes,
    Ticked,
    VerificationError,
    alternating,
    median_ratio,
)
from devtools.programs import missing_programs
from devtools.servers import database_servers

OURS = "stickybus"
PAYLOAD = Ticked(1)
PAYLOAD_BYTES = msgspec.json.encode(PAYLOAD)
PGQUEUER_BATCH = 100
PROCRASTINATE_CONCURRENCY = 30
AWA_WORKERS = 100
AWA_CLAIMERS = 2
"""Its documentation says to try 2 or 4."""
AWA_CLAIM_BATCH = 512
HUEY_WORKERS = 2
REDIS_APPENDFSYNC = "always"
LOOK_SECONDS = 0.01
"""Seconds between looks at the tasks that Celery has left in Redis."""


@dataclass(frozen=True)
class Rates:
    """The rates of a peer: entries a second posted in batches of 100, and handled from a backlog.

    A drain lasts from the first job's call (Celery: from when it is seen to have taken jobs) until
    the peer says that nothing is left: how long it takes to start is no matter of rate, and none of
    ours. `server`: the settings of one that it started.
    """

    posted: float
    drained: float
    server: Mapping[str, str] = field(default_factory=dict)


class _Calls:
    """The calls of a peer's job."""

    def __init__(self) -> None:
        self.count = 0
        self._numbers = itertools.count(1)
        self._first_at = 0.0

    def note(self) -> int:
        """One more; its number."""
        self.count = number = next(self._numbers)
        if number == 1:
            self._first_at = time.perf_counter()
        return number

    def rate(self, jobs: int) -> float:
        """Jobs a second since the first call."""
        return jobs / (time.perf_counter() - self._first_at)


@dataclass(frozen=True)
class Peer:
    """A library. `settings` are those that its documentation recommends for speed."""

    package: str
    measure: Callable[[URL, int], Rates]
    settings: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    """Servers that it starts for itself."""
    distribution: str = ""
    """The name under which it is installed, if that is not the package's."""

    @property
    def version(self) -> str:
        """The version that is installed."""
        return version(self.distribution or self.package)

    @property
    def installed(self) -> bool:
        """Whether it can be measured here."""
        packages = (self.package, *self.needs)
        return all(map(find_spec, packages)) and not any(map(missing_programs, self.servers))


class PgQueuer:
    """PgQueuer on one connection of asyncpg."""

    def __init__(self, connection: Any) -> None:
        from pgqueuer.queries import Queries

        self._connection = connection
        self.queries = Queries.from_asyncpg_connection(connection)

    @classmethod
    @asynccontextmanager
    async def on(cls, url: URL) -> AsyncIterator[PgQueuer]:
        """PgQueuer on a database."""
        import asyncpg

        connection = await asyncpg.connect(_plain(url))
        try:
            yield cls(connection)
        finally:
            await connection.close()

    async def install(self) -> None:
        """Make the tables."""
        await self.queries.install()
        await self.queries.optimize_autovacuum()

    async def post(self, payload: bytes = PAYLOAD_BYTES) -> None:
        """Post one job."""
        await self.queries.enqueue("tick", payload)

    async def post_many(self) -> None:
        """Post a hundred jobs."""
        batch: list[bytes | None] = [PAYLOAD_BYTES] * POST_MANY
        await self.queries.enqueue(["tick"] * POST_MANY, batch, [0] * POST_MANY)

    async def drain(self, jobs: int) -> float:
        """Do all `jobs`, and return how many a second. Raises VerificationError if one is left."""
        from pgqueuer import QueueManager
        from pgqueuer.models import Job
        from pgqueuer.types import QueueExecutionMode

        manager, calls = QueueManager(self.queries), _Calls()

        @manager.entrypoint("tick")
        async def tick(_job: Job) -> None:
            calls.note()

        await manager.run(batch_size=PGQUEUER_BATCH, mode=QueueExecutionMode.drain)
        rate = calls.rate(jobs)
        waiting = await self._connection.fetchval("SELECT count(*) FROM pgqueuer")
        ended = await self._connection.fetchval(
            "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"
        )
        _check("pgqueuer", jobs, handled=calls.count, ended=ended, waiting=waiting)
        return rate


def _pgqueuer(url: URL, entries: int) -> Rates:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_pgqueuer_rates(url, entries))


async def _pgqueuer_rates(url: URL, entries: int) -> Rates:
    async with PgQueuer.on(url) as queuer:
        await queuer.install()
        await queuer.post_many()
        start = time.perf_counter()
        for _ in range(0, entries, POST_MANY):
            await queuer.post_many()
        posted = entries / (time.perf_counter() - start)
        return Rates(posted, await queuer.drain(entries + POST_MANY))


def _procrastinate(url: URL, entries: int) -> Rates:
    with asyncio.Runner() as runner:
        return runner.run(_procrastinate_rates(url, entries))


async def _procrastinate_rates(url: URL, entries: int) -> Rates:
    from procrastinate import App, PsycopgConnector
    from procrastinate.types import JSONDict

    app = App(connector=PsycopgConnector(conninfo=_plain(url)))
    calls = _Calls()

    @app.task(name="tick")
    async def tick(number: int, account: str) -> None:
        del number, account
        calls.note()

    job: JSONDict = {"number": PAYLOAD.number, "account": PAYLOAD.account}
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await tick.batch_defer_async(*[job] * POST_MANY)
        start = time.perf_counter()
        for _ in range(0, entries, POST_MANY):
            await tick.batch_defer_async(*[job] * POST_MANY)
        posted = entries / (time.perf_counter() - start)
        await app.run_worker_async(
            wait=False, concurrency=PROCRASTINATE_CONCURRENCY, install_signal_handlers=False
        )
        drained = calls.rate(entries + POST_MANY)
        found = await app.connector.execute_query_all_async(
            "SELECT status, count(*) AS jobs FROM procrastinate_jobs GROUP BY status"
        )
    jobs = {row["status"]: row["jobs"] for row in found}
    ended = jobs.pop("succeeded", 0)
    _check(
        "procrastinate",
        entries + POST_MANY,
        handled=calls.count,
        ended=ended,
        waiting=sum(jobs.values()),
    )
    return Rates(posted, drained)


def _awa(url: URL, entries: int) -> Rates:
    return asyncio.run(_awa_rates(url, entries))


async def _awa_rates(url: URL, entries: int) -> Rates:
    import asyncpg
    import awa

    client = awa.AsyncClient(_plain(url))
    await client.migrate()
    await client.install_queue_storage()
    jobs, calls, done = entries + POST_MANY, _Calls(), asyncio.Event()
    batch = [PAYLOAD] * POST_MANY

    @client.task(Ticked, queue="ticks")
    async def tick(_job: awa.Job[Ticked]) -> None:
        if calls.note() >= jobs:
            done.set()

    await client.enqueue_many_copy(batch, queue="ticks")
    start = time.perf_counter()
    for _ in range(0, entries, POST_MANY):
        await client.enqueue_many_copy(batch, queue="ticks")
    posted = entries / (time.perf_counter() - start)
    settings = {"claimers": AWA_CLAIMERS, "claim_batch_size": AWA_CLAIM_BATCH}
    await client.start([{"name": "ticks", "max_workers": AWA_WORKERS, **settings}])
    await asyncio.wait_for(done.wait(), COMPLETION_SECONDS)
    # Its own counts take seconds. A job has ended once a batch of receipts names it.
    connection = await asyncpg.connect(_plain(url))
    # The table tells nobody of a change.
    receipts = "SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches"
    deadline = time.monotonic() + COMPLETION_SECONDS
    while (ended := await connection.fetchval(receipts)) < jobs and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_SECONDS)
    drained = calls.rate(jobs)
    await connection.close()
    await client.shutdown()
    await client.close()
    _check("awa", jobs, handled=calls.count, ended=ended, waiting=jobs - ended)
    return Rates(posted, drained)


def _huey(url: URL, entries: int) -> Rates:
    from huey import SqliteHuey

    # It removes a job before it runs: a crash loses those that run. A file of its own, beside ours.
    huey = SqliteHuey(filename=f"{url.database}.huey", fsync=True, results=False, strict_fifo=True)
    calls = _Calls()
    done = threading.Event()

    @huey.task()  # type: ignore[untyped-decorator]  # not typed there
    def tick(number: int, account: str) -> None:
        del number, account
        if calls.note() >= entries + POST_MANY:
            done.set()

    posted = _posted_singly(entries, lambda: tick(PAYLOAD.number, PAYLOAD.account))
    consumer = huey.create_consumer(workers=HUEY_WORKERS, periodic=False)
    consumer.start()
    done.wait(COMPLETION_SECONDS)
    drained = calls.rate(entries + POST_MANY)
    waiting = huey.storage.queue_size()
    consumer.stop(graceful=True)
    # A running task has left the file already.
    _check("huey", entries + POST_MANY, handled=calls.count, ended=calls.count, waiting=waiting)
    return Rates(posted, drained)


def _celery(_url: URL, entries: int) -> Rates:
    import redis

    # Its broker is a server of its own, with every write on disk before the answer.
    with database_servers(durable=True, which=["redis"]) as servers:
        durability = servers.server("redis").settings()
        if (durability["appendonly"], durability["appendfsync"]) != ("yes", REDIS_APPENDFSYNC):
            raise VerificationError(f"celery: Redis may lose jobs: {durability}")
        with (
            celery_application(servers["redis"]) as app,
            redis.Redis.from_url(servers["redis"]) as client,
            app.producer_pool.acquire() as producer,
        ):
            tick = app.tasks[CELERY_TASK]
            posted = _posted_singly(
                entries,
                lambda: tick.apply_async((PAYLOAD.number, PAYLOAD.account), producer=producer),
            )
            with closing(CeleryWorker(servers["redis"])) as worker:
                _celery_until(worker, "it has started", lambda: app.control.ping([CELERY_WORKER]))
                app.control.add_consumer(CELERY_QUEUE, destination=[CELERY_WORKER])
                _celery_until(
                    worker,
                    "it has begun",
                    lambda: client.hlen(CELERY_UNACKED) or not client.llen(CELERY_QUEUE),
                )
                start = time.perf_counter()
                _celery_until(
                    worker,
                    "nothing is left",
                    lambda: not client.llen(CELERY_QUEUE) + client.hlen(CELERY_UNACKED),
                )
                drained = (entries + POST_MANY) / (time.perf_counter() - start)
            waiting = client.llen(CELERY_QUEUE) + client.hlen(CELERY_UNACKED)
    # An ended task has left Redis.
    _check(
        "celery",
        entries + POST_MANY,
        handled=worker.handled,
        ended=worker.handled,
        waiting=waiting,
    )
    return Rates(posted, drained, durability)


def _celery_until(worker: CeleryWorker, what: str, reached: Callable[[], Any]) -> None:
    deadline = time.monotonic() + COMPLETION_SECONDS
    while not reached():
        if not worker.running:
            raise VerificationError(f"celery: its worker ended before {what}")
        if time.monotonic() > deadline:
            raise VerificationError(f"celery: not within {COMPLETION_SECONDS} s: {what}")
        time.sleep(LOOK_SECONDS)


def _posted_singly(entries: int, post: Callable[[], object]) -> float:
    """The rate of a peer without a bulk post."""
    for _ in range(POST_MANY):
        post()
    start = time.perf_counter()
    for _ in range(entries):
        post()
    return entries / (time.perf_counter() - start)


def _check(name: str, jobs: int, *, handled: int, ended: int, waiting: int) -> None:
    if (handled, ended, waiting) != (jobs, jobs, 0):
        raise VerificationError(
            f"{name}: {handled} handled, {ended} ended, {waiting} waiting of {jobs} jobs"
        )


def _plain(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


PGQUEUER = Peer(
    "pgqueuer",
    _pgqueuer,
    {
        "batch_size": PGQUEUER_BATCH,
        "driver": "asyncpg",
        "loop": "uvloop",
        "autovacuum": "optimized",
    },
    needs=("asyncpg", "uvloop"),
)
PEERS: Mapping[str, tuple[Peer, ...]] = {
    "postgresql": (
        PGQUEUER,
        Peer("procrastinate", _procrastinate, {"concurrency": PROCRASTINATE_CONCURRENCY}),
        Peer(
            "awa",
            _awa,
            {
                "post": "enqueue_many_copy",
                "workers": AWA_WORKERS,
                "claimers": AWA_CLAIMERS,
                "claim_batch_size": AWA_CLAIM_BATCH,
            },
            needs=("asyncpg",),
            distribution="awa-pg",
        ),
        Peer(
            "celery",
            _celery,
            {
                "broker": "redis",
                "appendfsync": REDIS_APPENDFSYNC,
                "acks_late": True,
                "concurrency": CELERY_CONCURRENCY,
                "prefetch_multiplier": CELERY_PREFETCH_MULTIPLIER,
            },
            needs=("redis",),
            servers=("redis",),
        ),
    ),
    "sqlite": (
        Peer("huey", _huey, {"workers": HUEY_WORKERS, "worker_type": "thread", "fsync": True}),
    ),
}


def peers(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Measure bulk posts and the drain of a backlog by Stickybus and each peer of the database."""
    entries = sizes.entries(10_000, POST_MANY) // POST_MANY * POST_MANY
    found = [peer for peer in PEERS.get(target.name, ()) if peer.installed]
    if not found:
        return
    seen: dict[str, list[Rates]] = {peer.package: [] for peer in found}

    def run(peer: Peer) -> float:
        with target.fresh() as url:
            seen[peer.package].append(peer.measure(url, entries))
        return 0.0

    ours = {
        "bulk post": (bulk_rate, bulk_post_rate),
        "drain": (move_rate, drain_rate),
    }
    works: dict[str, Callable[[], float]] = {
        f"{what}, {name}": partial(rate, target, entries)
        for what, (of_floor, of_ours) in ours.items()
        for name, rate in ((FLOOR, of_floor), (OURS, of_ours))
    }
    rates = alternating(sizes.rounds, works | {peer.package: partial(run, peer) for peer in found})
    for peer in found:
        rates[f"bulk post, {peer.package}"] = [rate.posted for rate in seen[peer.package]]
        rates[f"drain, {peer.package}"] = [rate.drained for rate in seen[peer.package]]
    for what in ours:
        base = rates[f"{what}, {FLOOR}"]
        chosen: dict[str, Mapping[str, Any]] = {OURS: {}} | {
            peer.package: {
                "version": peer.version,
                **peer.settings,
                **seen[peer.package][-1].server,
            }
            for peer in found
        }
        for name, settings in chosen.items():
            measured = rates[f"{what}, {name}"]
            yield Measurement(
                "peers",
                target.name,
                f"{what}, {name}",
                statistics.median(measured),
                "entries/s",
                {"entries": entries, "rounds": sizes.rounds, "rates": measured, **settings},
                median_ratio(measured, base),
            )
        for peer in found:
            ratio = median_ratio(rates[f"{what}, {OURS}"], rates[f"{what}, {peer.package}"])
            settings = {"entries": entries, "rounds": sizes.rounds}
            yield Measurement(
                "peers", target.name, f"{what}, {OURS} to {peer.package}", ratio, "x", settings
            )

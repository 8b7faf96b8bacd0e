"""A post in the caller's transaction, beside the same transaction with a plain INSERT."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    insert,
)
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from benchmarks.bare_delivery import BareDelivery, bare_delivery_cpu_seconds
from benchmarks.databases import Target
from benchmarks.floor import OWNER, bare
from benchmarks.measurement import Measurement
from benchmarks.workload import (
    FLOOR,
    WARM_UP,
    Run,
    Sizes,
    Ticked,
    alternating,
    median_ratio,
    run_on,
    verify_counts,
)
from queue_core.model.config import BusConfig
from queue_core.posting.commit_rate import GATHER_SECONDS

ROW_BYTES = {"sqlite": 230}
SERVERS_ROW_BYTES = 190
"""Of the plain row: as many as the columns of an entry have. Servers store dates as numbers."""
ASYNC_DRIVERS = {
    "postgresql": ("psycopg", "asyncpg"),
    "mariadb": ("aiomysql",),
    "mysql": ("aiomysql",),
    "sqlite": ("aiosqlite",),
}

metadata = MetaData()
_KEY = BigInteger().with_variant(Integer(), "sqlite")
orders = Table(
    "orders", metadata, Column("id", _KEY, primary_key=True), Column("customer", String(40))
)
notes = Table("notes", metadata, Column("id", _KEY, primary_key=True), Column("body", Text()))
INSERTS = {
    "?": ("INSERT INTO orders (customer) VALUES (?)", "INSERT INTO notes (body) VALUES (?)"),
    "%s": ("INSERT INTO orders (customer) VALUES (%s)", "INSERT INTO notes (body) VALUES (%s)"),
}
"""Of both rows, for the driver itself, by its mark of a parameter."""
DELIVERING = {"claim", "handler", "finish", "finish-2"}
"""The threads that deliver; another one watches SQLite's file, however much is posted."""


def body(database: str) -> str:
    """The plain row's text, by the name of SQLAlchemy's dialect."""
    return "n" * ROW_BYTES.get(database, SERVERS_ROW_BYTES)


@dataclass(frozen=True)
class _Cost:
    """Of one transaction: seconds of its caller, and CPU seconds of the process."""

    seconds: float
    cpu_seconds: float


_SECONDS, _CPU_SECONDS = attrgetter("seconds"), attrgetter("cpu_seconds")


def outbox(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """One INSERT and one post a transaction, by a Session or the driver; the bus runs, or doesn't.

    The floor writes a plain row of as many bytes in place of the post. The least delivery is that
    floor with an entry as its row, which other threads of the process move to history; they do
    nothing else. The last runs tell the threads and steps apart: of transactions that follow each
    other, and of those that wait until the outcome of the one before is written.
    """
    entries = sizes.entries(3_000, telling=200)
    beside = {
        f"Session, beside the least delivery{how}": partial(_beside_least, target, entries, pause)
        for how, pause in (("", 0.0), (" of what gathers in 3 ms", GATHER_SECONDS))
    }
    session, raw = partial(_session, target, entries), partial(_driver, target, entries)
    yield from _compared(target, sizes, entries, "Session", session, others=beside)
    yield from _compared(target, sizes, entries, "driver", raw)
    for driver in ASYNC_DRIVERS[target.name]:
        work = partial(_async_session, target, entries, driver)
        yield from _compared(target, sizes, entries, f"AsyncSession ({driver})", work)
    settings = {"entries": entries}
    for where, seconds in _cpu_by_step(target, entries).items():
        metric, value = f"CPU of a transaction and its delivery, {where}", seconds / entries * 1e6
        yield Measurement("outbox", target.name, metric, value, "us", settings)
    alone = _cpu_by_step(target, entries, one_at_a_time=True)
    spent = sum(alone.get(f"thread {name}", 0.0) for name in DELIVERING)
    floor = bare_delivery_cpu_seconds(target, entries)
    metric, value = "CPU from commit to outcome, one at a time", spent / entries
    ratio = value / floor
    yield Measurement("outbox", target.name, metric, value * 1e6, "us", settings, ratio)


def _cpu_by_step(target: Target, entries: int, *, one_at_a_time: bool = False) -> dict[str, float]:
    """CPU seconds of the steps in the caller's thread, and of each thread of the bus, by name."""
    spent = defaultdict[str, float](float)

    def step(name: str, work: Callable[[], object]) -> None:
        start = time.thread_time()
        work()
        spent[f"caller's {name}"] += time.thread_time() - start

    with _run(target, started=True) as (run, url):
        engine = create_engine(url)

        def post(session: Session, number: int) -> None:
            run.posted.append(run.bus.post(Ticked(number), connection=session))

        def transaction(number: int) -> None:
            with Session(engine) as session:
                step("INSERT", partial(session.execute, insert(orders), {"customer": "ann"}))
                step("post", partial(post, session, number))
                step("COMMIT", session.commit)

        for number in range(WARM_UP):
            transaction(number)
        run.wait()
        spent.clear()
        before = _cpu_of_others()
        for number in range(entries):
            transaction(number)
            if one_at_a_time:
                run.wait()
        run.wait()
        for name, seconds in _cpu_of_others().items():
            spent[f"thread {name}"] = seconds - before[name]
        engine.dispose()
    return spent


def _cpu_of_others() -> dict[str, float]:
    """CPU seconds of the threads of the bus so far; those of the handlers together."""
    spent = defaultdict[str, float](float)
    for thread in threading.enumerate():
        table, _, name = thread.name.partition("-")
        if table == BusConfig().table and thread.ident is not None:
            clock = time.pthread_getcpuclockid(thread.ident)
            spent["handler" if name.startswith("handler") else name] += time.clock_gettime(clock)
    return spent


def _compared(
    target: Target,
    sizes: Sizes,
    entries: int,
    kind: str,
    work: Callable[..., _Cost],
    *,
    others: Mapping[str, Callable[[], _Cost]] = MappingProxyType({}),
) -> Iterator[Measurement]:
    works: dict[str, Callable[[], _Cost]] = {
        FLOOR: partial(work, posts=False, started=False),
        kind: partial(work, posts=True, started=False),
        f"{kind}, bus started": partial(work, posts=True, started=True),
        **others,
    }
    found = alternating(sizes.rounds, works)
    floor = found.pop(FLOOR)
    for name, costs in found.items():
        for metric, of in (("time", _SECONDS), ("CPU", _CPU_SECONDS)):
            values = [of(cost) for cost in costs]
            yield Measurement(
                "outbox",
                target.name,
                f"{metric} of a transaction, {name}",
                statistics.median(values) * 1_000,
                "ms",
                {"entries": entries, "rounds": sizes.rounds},
                median_ratio(values, [of(cost) for cost in floor]),
            )


@contextmanager
def _run(target: Target, *, started: bool) -> Iterator[tuple[Run, URL]]:
    with run_on(target) as run:
        url = run.bus._engine.database.engine.url
        engine = create_engine(url)
        metadata.create_all(engine)
        engine.dispose()
        if started:
            run.start()
        yield run, url
        run.verify(delivered=started)


def _session(target: Target, entries: int, *, posts: bool, started: bool) -> _Cost:
    with _run(target, started=started) as (run, url):
        engine, note = create_engine(url), {"body": body(target.name)}

        def transaction(number: int) -> None:
            with Session(engine) as session:
                session.execute(insert(orders), {"customer": "ann"})
                if posts:
                    run.posted.append(run.bus.post(Ticked(number), connection=session))
                else:
                    session.execute(insert(notes), note)
                session.commit()

        cost = _cost(transaction, entries, run.wait if started else None)
        engine.dispose()
    return cost


def _driver(target: Target, entries: int, *, posts: bool, started: bool) -> _Cost:
    with _run(target, started=started) as (run, url):
        engine = create_engine(url)
        connection, note = engine.raw_connection(), body(target.name)
        driver: Any = connection.driver_connection
        of_order, of_note = INSERTS["?" if target.name == "sqlite" else "%s"]

        def transaction(number: int) -> None:
            cursor = driver.cursor()
            cursor.execute(of_order, ("ann",))
            if posts:
                run.posted.append(run.bus.post(Ticked(number), connection=driver))
            else:
                cursor.execute(of_note, (note,))
            driver.commit()

        cost = _cost(transaction, entries, run.wait if started else None)
        connection.close()
        engine.dispose()
    return cost


def _beside_least(target: Target, entries: int, pause_seconds: float) -> _Cost:
    with target.fresh() as url, bare(url) as finisher:
        engine = create_engine(url)
        metadata.create_all(engine)
        entry = dict(finisher.rows[0]) | {"processing_state": "IN_PROCESSING"}
        entry["processing_owner"] = OWNER
        add = insert(finisher.main).values(entry)
        with BareDelivery(finisher, pause_seconds) as delivery:

            def transaction(_number: int) -> None:
                with Session(engine) as session:
                    session.execute(insert(orders), {"customer": "ann"})
                    key: Any = session.connection().execute(add).inserted_primary_key
                    session.commit()
                delivery.tell(key.record_id)

            cost = _cost(transaction, entries, delivery.wait)
        engine.dispose()
        verify_counts(url, finisher.main.name, waiting=0, ended=WARM_UP + entries)
    return cost


def _cost(
    transaction: Callable[[int], None], entries: int, wait: Callable[[], None] | None
) -> _Cost:
    for number in range(WARM_UP):
        transaction(number)
    cpu, start = time.process_time(), time.perf_counter()
    for number in range(entries):
        transaction(number)
    seconds = time.perf_counter() - start
    if wait is not None:
        wait()
    return _Cost(seconds / entries, (time.process_time() - cpu) / entries)


def _async_session(
    target: Target, entries: int, driver: str, *, posts: bool, started: bool
) -> _Cost:
    with _run(target, started=started) as (run, url):
        engine = create_async_engine(url.set(drivername=f"{url.get_backend_name()}+{driver}"))
        return asyncio.run(_transactions(run, engine, entries, posts=posts, started=started))


async def _transactions(
    run: Run, engine: AsyncEngine, entries: int, *, posts: bool, started: bool
) -> _Cost:
    note = {"body": body(engine.dialect.name)}

    async def transaction(number: int) -> None:
        async with AsyncSession(engine) as session:
            await session.execute(insert(orders), {"customer": "ann"})
            if posts:
                run.posted.append(await run.bus.post_async(Ticked(number), connection=session))
            else:
                await session.execute(insert(notes), note)
            await session.commit()

    for number in range(WARM_UP):
        await transaction(number)
    cpu, start = time.process_time(), time.perf_counter()
    for number in range(entries):
        await transaction(number)
    seconds = time.perf_counter() - start
    if started:
        await asyncio.to_thread(run.wait)
    cost = _Cost(seconds / entries, (time.process_time() - cpu) / entries)
    await engine.dispose()
    return cost

"""Right calls: neither checker may find an error here."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from history_pipeline import Verified, find_archived, verify_archive
from stickybus import (
    KEYLESS,
    BusConfig,
    CallersConnection,
    CommitUnknownError,
    Entry,
    EntryContext,
    ExactlyOnceContext,
    ImmediateRetries,
    InMemoryBus,
    Insert,
    Job,
    Located,
    Mode,
    NodeConfig,
    NotificationConfig,
    NotificationQueue,
    NotificationService,
    PersistentBus,
    Posting,
    State,
    Task,
    Worker,
    WorkQueue,
    inspect,
)


@dataclass
class Order:
    number: int


@dataclass
class UrgentOrder(Order):
    pass


bus = PersistentBus("sqlite:///shop.db", BusConfig(mode=Mode.POLLING))
service = NotificationService("sqlite:///shop.db")


@bus.subscribe(Order)
def by_event(order: Order) -> None:
    print(order.number)


@bus.subscribe(Order, serial=True, retry=ImmediateRetries(3), max_run_seconds=5)
def by_context(order: Order, context: EntryContext) -> int:
    return order.number + context.attempt


@bus.subscribe(Order, name="awaited")
async def awaited(order: Order) -> None:
    print(order.number)


@bus.subscribe(Order, name="awaited with its context")
async def awaited_with_context(order: Order, context: EntryContext) -> None:
    print(order.number, context.attempt)


@bus.subscribe(Order, exactly_once=True)
def book(order: Order, context: ExactlyOnceContext) -> None:
    context.connection.execute(text("SELECT 1"), {"number": order.number})


@bus.subscribe(Order, exactly_once=True)
def book_carefully(order: Order, context: EntryContext) -> None:
    if context.connection is not None:
        context.connection.execute(text("SELECT 1"), {"number": order.number})


@bus.subscribe("order.paid")
def by_name(event: dict[str, int]) -> None:
    print(event["number"])


def of_all(event: object) -> None:
    print(event)


class Handler:
    def __call__(self, order: Order) -> None:
        print(order.number)


seen: list[Order] = []
bus.subscribe(Order, seen.append)
bus.subscribe(Order, Handler(), name="object")
bus.subscribe(UrgentOrder, of_all)
bus.subscribe(UrgentOrder, Handler())
bus.subscribe(Order, lambda order: print(order.number), name="lambda")
bus.subscribe("order.paid", by_name, serial=True)
gone: bool = bus.unsubscribe(of_all)
name: str = bus.register_event(Order, name="shop.order")

record_id: int = bus.post(Order(1), search_key1=3, delay=timedelta(seconds=5))
bus.post({"number": 1}, event_name="order.paid", at=datetime.now(UTC), headers={"trace": "1"})
ids: list[int] = bus.post_many([Order(1), Posting(event=Order(2), search_key2=4)])


def in_a_transaction(
    core: Connection, session: Session, scoped: scoped_session[Session], raw: sqlite3.Connection
) -> None:
    given: Sequence[CallersConnection | None] = [core, session, scoped, raw, None]
    for connection in given:
        bus.post(Order(1), connection=connection)
    bus.find(connection=session)


async def in_an_awaitable_one(session: AsyncSession, core: AsyncConnection) -> None:
    first: int = await bus.post_async(Order(1), connection=session, search_key1=3, delay=1.5)
    await bus.post_many_async([Order(first)], connection=core)
    found: list[Entry] = await bus.find_async(
        states="AVAILABLE", search_key1=KEYLESS, limit=5, connection=core
    )
    await bus.history_async(record_ids=[first], states={State.FAILED, "REMOVED"})
    await queue.schedule_async(Order(1), at=datetime.now(UTC), user_token="me", connection=session)
    await queue.update_async(found[0].record_id, event=Order(2), search_key1=None)
    await queue.remove_async(search_key1=3)


available: list[Entry] = bus.find(states=State.AVAILABLE)
bus.find(states="AVAILABLE")
bus.history(states=[State.FAILED, "REMOVED"], finished_before=datetime.now(UTC))
bus.truncate_history(states="PROCESSED")


@service.queue("shop:reminders", serial=True, event_types=[Order])
def remind(order: Order) -> None:
    print(order.number)


@service.queue("shop:bookings", exactly_once=True)
def book_later(order: Order, context: ExactlyOnceContext) -> None:
    context.connection.execute(text("SELECT 1"), {"number": order.number})


queue: NotificationQueue = service.get_queue("shop:reminders")
other: NotificationQueue = service.create_queue("shop", "others", by_context)
service.create_queue("shop", "lambdas", lambda event: print(event, end=""))
service.create_queue("shop", "contexts", lambda event, context: print(event, context.attempt))
service.create_queue("shop", "booked", book_later, exactly_once=True)
queue.schedule(Order(1), delay=30)
queue.schedule_many([Posting(event=Order(1), at=datetime.now(UTC))])
queue.recur("daily", Order(1), cron="0 8 * * *", timezone="Europe/Berlin")
queue.update(1, at=datetime.now(UTC), search_key1=None)
queue.remove(search_key1=3)


config: BusConfig = BusConfig.from_environment(mode="polling", handler_threads=4, retry=None)
node: NodeConfig = NodeConfig.from_toml("service.toml", lease_seconds=30)
other_config: NotificationConfig = NotificationConfig().with_changes(node=node, table="reminders")
keyed = PersistentBus("sqlite:///shop.db", config, handler_threads=8, retry={"kind": "immediate"})
NotificationService("sqlite:///shop.db", mode=Mode.POLLING, poll_interval_seconds=0.5)
InMemoryBus(handler_threads=2)
memory_id: int = InMemoryBus().post(Order(1))


def by_hand(session: Session) -> None:
    again: int = bus.retry(1, all_subscribers=True, connection=session)
    discarded: bool = bus.discard(again, connection=session)
    print(discarded, service.retry(2, force=True, connection=session))
    queue.recur("daily", Order(1), every=60, connection=session)
    ended: bool = queue.stop_recurring("daily", connection=session)
    print(ended, [one.next_due for one in queue.recurring(connection=session)])


async def by_hand_awaited(session: AsyncSession) -> None:
    again: int = await bus.retry_async(1, force=True, connection=session)
    await bus.discard_async(again, connection=session)
    await queue.recur_async("daily", Order(1), cron="@daily", connection=session)
    await queue.stop_recurring_async("daily", connection=session)


with inspect("sqlite:///shop.db") as inspector:
    served: list[str] = [one["queues"][0] for one in inspector.nodes()[0].serves]
    waiting: int = sum(depth.ready for depth in inspector.depths(table="bus_events"))
    located: list[Located] = inspector.entries(states="AVAILABLE", search_key1=KEYLESS, limit=5)
    letters: list[Located] = inspector.history(dead_letters=True, finished_since=datetime.now(UTC))

archived: list[Located] = find_archived("/var/archive", states="FAILED", limit=5)
verified: Verified = verify_archive("/var/archive", table="bus_events")


@bus.on_failed
def failed(entry: Entry, last_error: str) -> None:
    print(entry.record_id, last_error)


def post_or_look(order: Order) -> Sequence[int]:
    try:
        return [bus.post(order)]
    except CommitUnknownError as error:
        return error.record_ids


by_event(Order(1))


def directly(context: EntryContext) -> int:
    return by_context(Order(1), context)


work = WorkQueue("sqlite:///shop.db", claimant="me")
task: Task = work.insert("mail", {"to": "ann"}, priority="high", delay=timedelta(seconds=5))


def send(job: Job) -> Sequence[Insert]:
    return [Insert(queue="sent", value=job.task.value), Insert(queue="counted")]


async def send_awaited(job: Job) -> Insert | None:
    return None if job.given_up else Insert(queue="sent", value=job.task.value["to"])


def bill(job: Job) -> None:
    job.connection.execute(text("SELECT 1"), {"id": job.task.value})


async def bill_awaited(job: Job) -> None:
    await job.async_connection.execute(text("SELECT 1"), {"id": job.task.value})


def of_tasks(session: Session) -> list[str]:
    held = work.try_claim("mail", "push", lease_seconds=30)
    if held is not None:
        change = held.change(value=[1, None, b""], delay=3)
        work.modify(change, Insert(queue="sent"), connection=session)
    return [one.id for one in work.finished_tasks("mail", since=datetime.now(UTC), limit=5)]


async def of_tasks_awaited(session: AsyncSession) -> None:
    held: Task = await work.claim_async("mail", timeout_seconds=3)
    await work.modify_async(held.delete(), connection=session)
    await work.recur_async("mail", "daily", {"to": "all"}, cron="0 8 * * *")


Worker(work, send, "mail", concurrency=4, retry=ImmediateRetries(3)).run(until_empty=True)
Worker(work, bill, "bills", engine=create_engine("sqlite:///shop.db"))
Worker(work, send_awaited, "mail", "push", error_queue=lambda queue: f"{queue}/failed")

with bus, service:
    remind(Order(2))

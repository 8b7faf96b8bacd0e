"""Wrong calls: both checkers must find each line that says so, and no other. The mark is mypy's code, then pyright's."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import date, timedelta

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncSession

import history_pipeline
from stickybus import (
    BusConfig,
    EntryContext,
    ExactlyOnceContext,
    InMemoryBus,
    Insert,
    Job,
    NodeConfig,
    NotificationConfig,
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
class Invoice:
    number: int


bus = PersistentBus("sqlite:///shop.db")
memory = InMemoryBus()
service = NotificationService("sqlite:///shop.db")
queue = service.get_queue("shop:reminders")


def of_invoice(invoice: Invoice) -> None: ...
def of_nothing() -> None: ...
def of_three(order: Order, context: EntryContext, more: int) -> None: ...
def of_order(order: Order) -> None: ...
def of_a_text(order: Order, context: str) -> None: ...
def booking(order: Order, context: ExactlyOnceContext) -> None: ...
async def awaited_invoice(invoice: Invoice) -> None: ...


# What is posted, and how.
bus.nonsense()  # error: attr-defined reportAttributeAccessIssue,reportUnknownMemberType
bus.post()  # error: call-overload reportCallIssue
bus.post(Order(1), nonsense=3)  # error: call-overload reportCallIssue
bus.post(Order(1), serch_key1=3)  # error: call-overload reportCallIssue
bus.post(Order(1), search_key1=1.5)  # error: call-overload reportArgumentType
bus.post(Order(1), delay="soon")  # error: call-overload reportArgumentType
bus.post(Order(1), at=date(2026, 1, 1))  # error: call-overload reportArgumentType
bus.post(Order(1), at=timedelta(seconds=1))  # error: call-overload reportArgumentType
bus.post(Order(1), headers={"trace": 1})  # error: dict-item reportArgumentType
bus.post(Order(1), user_token=7)  # error: call-overload reportArgumentType
text: str = bus.post(Order(1))  # error: assignment reportAssignmentType
bus.post_many(5)  # error: arg-type reportArgumentType
Posting(Order(1))  # error: call-arg,misc reportCallIssue
Posting(event=Order(1), delay=3)  # error: call-arg reportCallIssue


# On what it is posted.
def on_connections(engine: Engine, awaitable: AsyncSession, cursor: sqlite3.Cursor, core: Connection) -> None:
    bus.post(Order(1), connection=engine)  # error: call-overload reportArgumentType
    bus.post(Order(1), connection=awaitable)  # error: call-overload reportArgumentType
    bus.post(Order(1), connection=cursor)  # error: call-overload reportArgumentType
    bus.post(Order(1), connection="sqlite:///shop.db")  # error: call-overload reportArgumentType
    queue.schedule(Order(1), delay=1, connection=awaitable)  # error: call-overload reportArgumentType
    bus.find(connection=engine)  # error: arg-type reportArgumentType
    memory.post(Order(1), connection=engine)  # error: call-overload reportArgumentType
    queue.remove(1, core)  # error: call-arg,arg-type,misc reportCallIssue


# Awaitable twins know the same options.
async def awaitable_twins(core: Connection) -> None:
    await bus.post_async(Order(1), serch_key1=3)  # error: call-overload reportCallIssue
    await bus.post_async(Order(1), search_key1=1.5)  # error: call-overload reportArgumentType
    await bus.post_async(Order(1), connection=core)  # error: call-overload reportArgumentType
    await bus.find_async(state=State.FAILED)  # error: call-arg reportCallIssue
    await bus.find_async(states=3)  # error: arg-type reportArgumentType
    await bus.history_async(effective_before=None)  # error: call-arg reportCallIssue
    await queue.schedule_async(Order(1), dealy=3)  # error: call-overload reportCallIssue
    await queue.update_async(1, dealy=3)  # error: call-arg reportCallIssue
    await queue.remove_async(1, key=3)  # error: call-arg reportCallIssue


# Who handles it.
bus.subscribe(Order, of_invoice)  # error: arg-type,call-overload reportArgumentType,reportCallIssue
bus.subscribe(Order, awaited_invoice)  # error: arg-type,call-overload reportArgumentType,reportCallIssue
bus.subscribe(Order, of_nothing)  # error: arg-type,call-overload reportArgumentType,reportCallIssue
bus.subscribe(Order, of_three)  # error: arg-type,call-overload reportArgumentType,reportCallIssue
bus.subscribe(Order, of_a_text)  # error: arg-type,call-overload reportArgumentType,reportCallIssue
bus.subscribe(Order, "of_order")  # error: arg-type,call-overload reportArgumentType,reportCallIssue
bus.subscribe(Order, booking)  # error: arg-type,call-overload reportArgumentType,reportCallIssue
bus.subscribe(Order, of_order, exactly_once=True)  # error: arg-type,call-overload reportArgumentType,reportCallIssue
bus.subscribe(Order, of_order, retry=3)  # error: arg-type,call-overload reportArgumentType,reportCallIssue
bus.subscribe(Order, of_order, seriell=True)  # error: call-overload reportCallIssue
bus.subscribe(5, of_order)  # error: arg-type,call-overload reportArgumentType,reportCallIssue
bus.subscribe(Order)(of_invoice)  # error: arg-type,call-overload reportArgumentType,reportCallIssue
bus.subscribe(Order)(booking)  # error: arg-type,call-overload reportArgumentType,reportCallIssue
bus.subscribe(Order, exactly_once=True)(of_order)  # error: arg-type reportArgumentType
bus.subscribe("order.paid")(of_nothing)  # error: type-var reportArgumentType
bus.unsubscribe("of_order")  # error: arg-type reportArgumentType
bus.register_event(5)  # error: call-overload reportCallIssue,reportArgumentType
bus.register_event("shop.order", name="x")  # error: call-overload reportCallIssue,reportArgumentType
service.create_queue("shop", "reminders", of_three)  # error: arg-type,call-overload reportArgumentType,reportCallIssue
service.create_queue("shop", "reminders", booking)  # error: arg-type,call-overload reportArgumentType,reportCallIssue
service.create_queue("shop", "reminders")  # error: call-overload reportCallIssue
service.queue("shop:reminders")(of_nothing)  # error: type-var reportArgumentType
service.queue("shop:bookings")(booking)  # error: type-var reportArgumentType
service.queue("shop", "reminders")  # error: call-overload reportCallIssue


def careless(context: EntryContext, once: ExactlyOnceContext) -> None:
    context.connection.begin()  # error: union-attr reportOptionalMemberAccess
    once.connection.nonsense()  # error: attr-defined reportAttributeAccessIssue,reportUnknownMemberType


# What is read and changed.
bus.find(states="AVAILABEL")  # error: arg-type reportArgumentType
bus.find(states=["DONE"])  # error: list-item reportArgumentType
bus.find(record_ids=7)  # error: arg-type reportArgumentType
bus.truncate_history(states=3)  # error: arg-type reportArgumentType
bus.retry("3")  # error: arg-type reportArgumentType
queue.schedule_many([Order(1)])  # error: list-item reportArgumentType
queue.recur("daily", Order(1), cron=8)  # error: arg-type reportArgumentType
queue.update("1")  # error: arg-type reportArgumentType
BusConfig(handler_thread=3)  # error: call-arg reportCallIssue


# How it is configured.
BusConfig.from_environment(handler_thread=3)  # error: call-arg reportCallIssue
BusConfig.from_environment(mode="push")  # error: arg-type reportArgumentType
BusConfig.from_toml("service.toml", handler_threads="4")  # error: arg-type reportArgumentType
BusConfig().with_changes(lease_seconds=30)  # error: call-arg reportCallIssue
NotificationConfig().with_changes(name="bus")  # error: call-arg reportCallIssue
NodeConfig.from_environment(lease_second=30)  # error: call-arg reportCallIssue
PersistentBus("sqlite:///shop.db", handler_thread=4)  # error: call-arg reportCallIssue
PersistentBus("sqlite:///shop.db", node=BusConfig())  # error: arg-type reportArgumentType
NotificationService("sqlite:///shop.db", mode=3)  # error: arg-type reportArgumentType
InMemoryBus(retry=3)  # error: arg-type reportArgumentType


# What is changed by hand, and in whose transaction.
async def by_hand(core: Connection, awaitable: AsyncSession) -> None:
    bus.retry(1, connection=awaitable)  # error: arg-type reportArgumentType
    bus.retry(1, all_subscriber=True)  # error: call-arg reportCallIssue
    bus.discard("1")  # error: arg-type reportArgumentType
    bus.truncate_history(connection=core)  # error: call-arg reportCallIssue
    queue.stop_recurring("daily", core)  # error: call-arg,misc reportCallIssue
    queue.recur("daily", Order(1), every=1, connection="shop.db")  # error: arg-type reportArgumentType
    await bus.retry_async(1, connection=core)  # error: arg-type reportArgumentType
    await queue.recur_async("daily", Order(1), evry=3)  # error: call-arg reportCallIssue
    with inspect("sqlite:///shop.db") as inspector:
        inspector.entries(finished_since=None)  # error: call-arg reportCallIssue
        inspector.history(states="DONE")  # error: arg-type reportArgumentType
        inspector.nodes()[0].serves[0]["queue"]  # error: typeddict-item reportTypedDictNotRequiredAccess,reportGeneralTypeIssues,reportUnknownMemberType
    history_pipeline.find_archived("/var/archive", state="FAILED")  # error: call-arg reportCallIssue
    history_pipeline.find_archived_tasks("/var/archive", ids=[1])  # error: list-item reportArgumentType
    history_pipeline.find_archive("/var/archive")  # error: attr-defined reportAttributeAccessIssue,reportUnknownMemberType


# What is done with tasks.
def on_tasks(work: WorkQueue, task: Task, engine: Engine, awaitable: AsyncSession) -> None:
    work.insert("mail", {"to": "ann"}, priority="highest")  # error: arg-type reportArgumentType
    work.insert("mail", prio="high")  # error: call-arg reportCallIssue
    work.insert("mail", delay="soon")  # error: arg-type reportArgumentType
    work.insert("mail", connection=engine)  # error: arg-type reportArgumentType
    work.modify(task)  # error: arg-type reportArgumentType
    work.modify(task.delete(), connection=awaitable)  # error: arg-type reportArgumentType
    work.claim(5)  # error: arg-type reportArgumentType
    work.claim("mail", lease=3)  # error: call-arg reportCallIssue
    work.try_claim("mail").delete()  # error: union-attr reportOptionalMemberAccess
    work.claim_many("mail")  # error: call-arg reportCallIssue
    work.truncate_history("mail", before="1d")  # error: arg-type reportArgumentType
    work.recur("mail", "daily", cron=8)  # error: arg-type reportArgumentType
    task.change(valeu=3)  # error: call-arg reportCallIssue
    task.change(delay="soon")  # error: arg-type reportArgumentType
    Insert("mail")  # error: misc,call-arg reportCallIssue


async def awaited_tasks(work: WorkQueue, core: Connection) -> None:
    await work.insert_async("mail", prio="high")  # error: call-arg reportCallIssue
    await work.insert_async("mail", connection=core)  # error: arg-type reportArgumentType
    await work.claim_async("mail", timeout=3)  # error: call-arg reportCallIssue


def of_a_task(task: Task) -> None: ...
def send(job: Job) -> Insert: return Insert(queue="sent", value=job.task.value)
def answer(job: Job) -> str: return job.task.id
def bill(job: Job) -> None: job.connection.nonsense()  # error: attr-defined reportAttributeAccessIssue,reportUnknownMemberType
async def bill_awaited(job: Job) -> None: await job.connection.commit()  # error: func-returns-value,misc reportGeneralTypeIssues


def workers(work: WorkQueue) -> None:
    Worker(work, of_a_task, "mail")  # error: arg-type reportArgumentType
    Worker(work, answer, "mail")  # error: arg-type reportArgumentType
    Worker(work, send, 5)  # error: arg-type reportArgumentType
    Worker(work, send, "mail", retries=3)  # error: call-arg reportCallIssue
    Worker(work, send, "mail", retry=3)  # error: arg-type reportArgumentType
    Worker("sqlite:///shop.db", send, "mail")  # error: arg-type reportArgumentType

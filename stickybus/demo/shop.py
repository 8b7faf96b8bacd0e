"""The demo's application: a small shop, its events, its handlers, and its own two tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Column, Integer, MetaData, Table, create_engine, insert

from bus.persistent import PersistentBus
from notifications.queue import NotificationQueue
from notifications.service import NotificationService
from queue_core.model.config import BusConfig, NotificationConfig
from queue_core.model.node_config import NodeConfig
from queue_core.running.subscriber import EntryContext

NODES = ("amber", "birch", "cedar")
DOOMED = "cedar"
"""The node that is killed; its handlers are slow, so that it dies with its hands full."""
LEASE_SECONDS = 3.0
NODE = NodeConfig(lease_seconds=LEASE_SECONDS, reap_period_seconds=1.0)
"""A fifth of the default, for an audience that waits."""
HANDLER_SECONDS = 0.005
SLOW_HANDLER_SECONDS = 0.06

RUNS = 4
"""The runs of a handler that always fails: the first and the default three retries."""

_metadata = MetaData()
orders = Table("shop_orders", _metadata, Column("number", Integer), Column("cents", Integer))
payments = Table("shop_payments", _metadata, Column("number", Integer), Column("cents", Integer))


@dataclass(frozen=True)
class OrderPlaced:
    """Posted in the transaction that writes the order (an outbox)."""

    number: int
    cents: int


@dataclass(frozen=True)
class PaymentReceived:
    """Its handler books it exactly once."""

    number: int
    cents: int


@dataclass(frozen=True)
class ParcelShipped:
    """Its handler fails once for every other parcel."""

    number: int


@dataclass(frozen=True)
class InvoiceRequested:
    """Its handler always fails."""

    number: int


@dataclass(frozen=True)
class Reminder:
    """A notification."""

    number: int


Event = OrderPlaced | PaymentReceived | ParcelShipped | InvoiceRequested


class CarrierTimeoutError(Exception):
    """The carrier's service did not answer."""


class PrinterOnFireError(Exception):
    """Invoices can't be printed."""


def event_of(number: int) -> Event:
    """The shop's event with this number, from 1 on."""
    if number % 100 == 1:
        return InvoiceRequested(number)
    match number % 4:
        case 0:
            return PaymentReceived(number, cents(number))
        case 3:
            return ParcelShipped(number)
        case _:
            return OrderPlaced(number, cents(number))


def cents(number: int) -> int:
    """The price of an order, by its number."""
    return 1_000 + number * 37 % 9_000


def times_out(number: int) -> bool:
    """Whether the carrier does not answer at the first try."""
    return number % 8 == 3  # noqa: PLR2004 -- every other of the parcels, whose numbers are 3 modulo 4


def changed_mind(number: int) -> bool:
    """Whether an order was first placed and rolled back."""
    return isinstance(event_of(number), OrderPlaced) and number % 20 == 2  # noqa: PLR2004 -- some orders


def database_url(folder: Path) -> URL:
    """The SQLite file that all nodes share."""
    return URL.create("sqlite", database=str(folder / "shop.db"))


def create_tables(folder: Path) -> None:
    """Make the shop's own tables."""
    engine = create_engine(database_url(folder))
    _metadata.create_all(engine)
    engine.dispose()


def open_bus(folder: Path, node_name: str | None = None) -> PersistentBus:
    """The shop's bus, not started, without subscribers."""
    return PersistentBus(
        database_url(folder),
        BusConfig(node_name=node_name, node=NODE, handler_threads=8),
    )


def open_reminders(
    folder: Path, node_name: str | None, handler: Callable[[Reminder], None]
) -> tuple[NotificationService, NotificationQueue]:
    """The shop's notification service and its only queue, not started."""
    service = NotificationService(
        database_url(folder),
        NotificationConfig(node_name=node_name, node=NODE, handler_threads=4),
    )
    return service, service.create_queue("shop", "reminders", handler)


def subscribe(bus: PersistentBus, work: Callable[[], None]) -> None:
    """Subscribe the shop's handlers. Each calls `work`, which takes its time."""

    @bus.subscribe(OrderPlaced, name="pick")
    def pick(_order: OrderPlaced) -> None:
        work()

    @bus.subscribe(PaymentReceived, name="book", exactly_once=True)
    def book(payment: PaymentReceived, context: EntryContext) -> None:
        work()
        if context.connection is not None:
            context.connection.execute(
                insert(payments).values(number=payment.number, cents=payment.cents)
            )

    @bus.subscribe(ParcelShipped, name="announce")
    def announce(parcel: ParcelShipped, context: EntryContext) -> None:
        work()
        if times_out(parcel.number) and context.error_count == 0:
            raise CarrierTimeoutError(f"no answer about parcel {parcel.number}")

    @bus.subscribe(InvoiceRequested, name="print")
    def print_invoice(invoice: InvoiceRequested) -> None:
        work()
        raise PrinterOnFireError(f"invoice {invoice.number} can't be printed")


def working(seconds: float) -> Callable[[], None]:
    """Return the function that stands for a handler's work."""
    return lambda: time.sleep(seconds)

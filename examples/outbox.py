"""A transactional outbox: the order and the event about it are committed together, or neither is.

Run it: `python outbox.py sqlite:///shop.db`
"""

import queue
import sys
from dataclasses import dataclass

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from stickybus import PersistentBus, create_schema


class Base(DeclarativeBase):
    """The shop's tables."""


class Order(Base):
    """A row of the shop's own."""

    __tablename__ = "shop_orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    cents: Mapped[int]


@dataclass(frozen=True)
class OrderPlaced:
    """The facts of an order that others want to know."""

    order_id: int
    cents: int


class PaymentRefusedError(Exception):
    """The card has expired."""


def place_order(session: Session, bus: PersistentBus, cents: int) -> Order:
    """Write an order and post its event, in the session's transaction."""
    order = Order(cents=cents)
    session.add(order)
    session.flush()  # gives the order its id
    bus.post(OrderPlaced(order.id, cents), search_key1=order.id, connection=session)
    return order


def main(url: str) -> None:
    """Place one order that commits, and one that does not."""
    create_schema(url)
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    bus, confirmed = PersistentBus(url), queue.SimpleQueue[OrderPlaced]()

    @bus.subscribe(OrderPlaced)
    def confirm(placed: OrderPlaced) -> None:
        confirmed.put(placed)

    with bus:
        with Session(engine) as session, session.begin():
            kept = place_order(session, bus, cents=4_200).id
        try:
            with Session(engine) as session, session.begin():
                place_order(session, bus, cents=999)
                raise PaymentRefusedError  # noqa: TRY301 -- stands for a payment service
        except PaymentRefusedError:
            print("the second order was rolled back, and its event with it")
        placed = confirmed.get(timeout=10)
        print(f"order {placed.order_id} of {placed.cents / 100:.2f} is confirmed")
        bus.stop()
        print(f"{len(bus.history(search_key1=kept))} event in history, {len(bus.find())} waiting")
    engine.dispose()


if __name__ == "__main__":
    main(sys.argv[1])

"""An effect that happens exactly once: the handler's writes commit with the entry's outcome.

The handler breaks at its first run, after it has written. Run it: `python exactly_once.py
sqlite:///bank.db`
"""

import sys
import threading
from dataclasses import dataclass

from sqlalchemy import Column, Integer, MetaData, Table, create_engine, insert, select, update

from stickybus import ExactlyOnceContext, PersistentBus, create_schema

PAYMENTS = 10

metadata = MetaData()
accounts = Table(
    "bank_accounts", metadata, Column("id", Integer, primary_key=True), Column("cents", Integer)
)


@dataclass(frozen=True)
class MoneyReceived:
    """To be booked once."""

    account_id: int
    cents: int


def main(url: str) -> None:
    """Book `PAYMENTS` payments of 1.00, each after one failure."""
    create_schema(url)
    engine = create_engine(url)
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(accounts).values(id=1, cents=0))
    bus, runs, all_booked = PersistentBus(url), [], threading.Event()

    @bus.subscribe(MoneyReceived, exactly_once=True, serial=True)
    def book(received: MoneyReceived, context: ExactlyOnceContext) -> None:
        account = accounts.c.id == received.account_id
        raised = update(accounts).where(account).values(cents=accounts.c.cents + received.cents)
        context.connection.execute(raised)
        runs.append(context.record_id)
        if context.error_count == 0:
            raise ConnectionError("the power went, after the write")
        if len(runs) == 2 * PAYMENTS:
            all_booked.set()

    with bus:
        bus.post_many([MoneyReceived(1, 100)] * PAYMENTS)
        all_booked.wait(timeout=30)
        bus.stop()
        with engine.connect() as connection:
            cents = connection.execute(select(accounts.c.cents)).scalar_one()
        print(
            f"{len(runs)} runs, {len(bus.history())} payments, the account holds {cents / 100:.2f}"
        )
    engine.dispose()


if __name__ == "__main__":
    main(sys.argv[1])

"""One node of the demo, in another process.

It posts its share of the events, and runs handlers.

After each commit it notes the posted entries in a ledger, a file of its own. The ledger is no part
of the queue: in the end the queue is compared with it.
"""

from __future__ import annotations

import json
import logging
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TextIO

from sqlalchemy import create_engine, insert
from sqlalchemy.orm import Session

from bus.persistent import PersistentBus
from notifications.queue import NotificationQueue
from stickybus.demo import shop

CHUNK = 24
"""Events of one transaction in the rush, at most."""
CALM_INTERVAL_SECONDS = 0.05


@dataclass(frozen=True)
class Share:
    """The share of one node.

    Attributes:
        calm: Events that it posts one at a time.
        rush: Events that it posts as fast as it can.
        reminders: Reminders, by number and delay.
    """

    node_name: str
    folder: Path
    calm: Sequence[int]
    rush: Sequence[int]
    reminders: Sequence[tuple[int, float]]
    handler_seconds: float


@dataclass(frozen=True)
class LedgerLine:
    """An entry whose commit has returned. `kind`: calm, rush or reminder."""

    record_id: int
    number: int
    kind: str


def ledger_path(folder: Path, node_name: str) -> Path:
    """Return the path of a node's ledger."""
    return folder / f"{node_name}.ledger"


def read_ledger(path: Path) -> list[LedgerLine]:
    """Return the lines that a node has noted, in order; none if it has not begun."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [LedgerLine(*json.loads(line)) for line in lines]


def run_node(share: Share, parent: Connection) -> None:
    """Be a node until the parent says so, or is gone. Tells it `live`, then `posted`."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the parent too, which then stops its nodes
    logging.basicConfig(filename=share.folder / f"{share.node_name}.log", level=logging.WARNING)
    work = shop.working(share.handler_seconds)
    bus = shop.open_bus(share.folder, share.node_name)
    shop.subscribe(bus, work)

    def remind(_reminder: shop.Reminder) -> None:
        work()

    service, reminders = shop.open_reminders(share.folder, share.node_name, remind)
    try:
        with (
            bus,
            service,
            ledger_path(share.folder, share.node_name).open("w", encoding="utf-8") as ledger,
        ):
            parent.send("live")
            parent.recv()
            _Posting(share, bus, reminders, ledger).run()
            parent.send("posted")
            parent.recv()
    except (EOFError, BrokenPipeError):
        return


class _Posting:
    """Posts a share, and notes it."""

    def __init__(
        self, share: Share, bus: PersistentBus, reminders: NotificationQueue, ledger: TextIO
    ) -> None:
        self._share = share
        self._bus = bus
        self._reminders = reminders
        self._ledger = ledger
        self._application = create_engine(
            shop.database_url(share.folder), connect_args={"timeout": 30}
        )

    def run(self) -> None:
        for number, delay in self._share.reminders:
            record_id = self._reminders.schedule(
                shop.Reminder(number), delay=delay, search_key1=number
            )
            self._note("reminder", [(record_id, number)])
        for number in self._share.calm:
            self._post([number], "calm")
            time.sleep(CALM_INTERVAL_SECONDS)
        for first in range(0, len(self._share.rush), CHUNK):
            self._post(self._share.rush[first : first + CHUNK], "rush")
        self._application.dispose()

    def _note(self, kind: str, posted: Iterable[tuple[int, int]]) -> None:
        for record_id, number in posted:
            self._ledger.write(json.dumps(astuple(LedgerLine(record_id, number, kind))) + "\n")
        self._ledger.flush()

    def _post(self, numbers: Sequence[int], kind: str) -> None:
        events = [shop.event_of(number) for number in numbers]
        orders = [event for event in events if isinstance(event, shop.OrderPlaced)]
        others = [event for event in events if not isinstance(event, shop.OrderPlaced)]
        ids = self._bus.post_many(others)
        self._note(
            kind, [(record_id, event.number) for record_id, event in zip(ids, others, strict=True)]
        )
        doubtful = [order for order in orders if shop.changed_mind(order.number)]
        if doubtful:
            with Session(self._application) as session:
                self._place(session, doubtful)
                session.rollback()
        if orders:
            with Session(self._application) as session:
                ids = self._place(session, orders)
                session.commit()
            self._note(
                kind,
                [(record_id, order.number) for record_id, order in zip(ids, orders, strict=True)],
            )

    def _place(self, session: Session, placed: Sequence[shop.OrderPlaced]) -> list[int]:
        session.execute(
            insert(shop.orders),
            [{"number": order.number, "cents": order.cents} for order in placed],
        )
        return self._bus.post_many(placed, connection=session)

"""The statements on order keys, waits and idempotency keys seek by index, however many rows stand.

They are those that the engine sends, explained in the session that sent them, and what they read is
counted. The tables were analysed while they were empty, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from queue_core.storage.store import Store
from sql.doctor.base import Step
from sql.registry import doctor_of
from sql.statements.key_shapes import PERIOD, KeyRow
from sql.statements.ordered import OrderKey
from sql.statements.waits import Wait
from tests.contract.conftest import MakeBus
from tests.contract.harness import database_of, engine_of
from tests.contract.plans.caught import catching
from tests.contract.plans.cost import cost_of

MOST_READ = 600
"""What a statement reads at most: rows, or hundreds of instructions on SQLite."""
TABLES = "queue_ordered", "queue_order_heads", "queue_waits", "queue_keys"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATE = datetime(2200, 1, 1, tzinfo=UTC)
"""Everything is due by then."""
IDS = [7, 8, 9]
FEW = [f"key-{number}" for number in IDS]
ORDER_KEY = OrderKey("bus_events", "bus", "key-7")
_DIGITS = "(" + " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10)) + ")"
_PLACES = "d0.d", "10 * d1.d", "100 * d2.d", "1000 * d3.d"
_FUTURE = "'2100-01-01 00:00:00.000000'"


@dataclass(frozen=True)
class Links:
    """The statements on the three kinds of links, in one session."""

    store: Store
    connection: Connection

    def order(self, name: str, given: Sequence[Any]) -> None:
        getattr(self.store.ordering.statements, name)(self.connection, *given)

    def places(self) -> None:
        self.store.ordering.statements.places(self.connection, "bus_events", ids=IDS)

    def waits(self, name: str, given: Mapping[str, Any]) -> None:
        waits = self.store.dependencies.statements
        getattr(waits, name)(self.connection, "bus_events", **given)

    def keys(self, name: str, given: Mapping[str, Any]) -> None:
        keys = self.store.keys.keys
        getattr(keys, name)(self.connection, "bus_events", "bus", **given)

    def due_keys(self, name: str, given: Mapping[str, Any]) -> None:
        options = {"now": NOW, **given}
        getattr(self.store.keys.keys, name)(self.connection, "bus_events", **options)

    def with_entries(self) -> None:
        main = self.store.statements.main
        self.store.keys.keys.with_entries(self.connection, main, "bus", keys=FEW)

    def page_of_keys(self, given: Mapping[str, Any]) -> None:
        self.store.keys.keys.page(self.connection, "bus_events", **given)

    def of_entries(self, name: str, given: Mapping[str, Any]) -> None:
        main = self.store.statements.main
        getattr(self.store.keys.keys, name)(self.connection, main, ids=IDS, **given)


KEY_ROWS = [KeyRow(key, 7, PERIOD, 60.0) for key in FEW]


def operations() -> Iterator[tuple[str, Callable[[Links], object]]]:
    """Every statement that posts, ends and turns of the claim loop send."""
    order: dict[str, tuple[Any, ...]] = {
        "add": ([{**ORDER_KEY._asdict(), "record_id": -7, "lane": "", "unstarted": False}],),
        "begin": (ORDER_KEY, 7),
        "lock_head": (ORDER_KEY,),
        "first": (ORDER_KEY,),
        "head": (ORDER_KEY,),
        "remove": ("bus_events", 7),
        "hold": (ORDER_KEY, 7, NOW),
        "resume": (ORDER_KEY, 7, 7),
        "renew": (ORDER_KEY, 7, 7),
        "end_head": (ORDER_KEY, 7),
        "unstarted": ("bus_events", 10),
        "started": (ORDER_KEY,),
    }
    for name, arguments in order.items():
        yield f"order {name}", partial(Links.order, name=name, given=arguments)
    yield "order places", Links.places
    waits: dict[str, dict[str, Any]] = {
        "of_awaited": {"ids": IDS},
        "of_waiters": {"ids": IDS},
        "are_due": {"now": NOW},
        "lock_due": {"now": NOW, "limit": 10},
        "change": {"waits": [Wait(7, 7)], "values": {"awaited_state": "FAILED"}},
        "remove": {"waits": [Wait(7, 7)]},
    }
    for name, options in waits.items():
        yield f"waits {name}", partial(Links.waits, name=name, given=options)
    keys: dict[str, dict[str, Any]] = {
        "find": {"keys": FEW, "lock": True},
        "add": {"rows": KEY_ROWS, "taken_by": "me", "look": NOW},
        "make": {"keys": ["new"], "taken_by": "me", "look": NOW},
        "put": {"rows": KEY_ROWS, "taken_by": "me", "look": NOW},
        "change": {"keys": FEW, "values": {"record_id": 8}},
        "remove": {"keys": FEW},
    }
    for name, options in keys.items():
        yield f"keys {name}", partial(Links.keys, name=name, given=options)
    yield "keys are_due", partial(Links.due_keys, name="are_due", given={})
    yield "keys to_look_at", partial(Links.due_keys, name="to_look_at", given={"limit": 10})
    all_due = {"now": LATE, "limit": 10}
    yield "keys all due", partial(Links.due_keys, name="to_look_at", given=all_due)
    yield "waits all due", partial(Links.waits, name="lock_due", given=all_due)
    for name, queue, key in (
        ("first", None, None),
        ("of all", None, "key-5"),
        ("of one", "bus", "key-5"),
        ("at the end", None, "key-9999"),
    ):
        after = None if key is None else ("bus", key)
        page: dict[str, Any] = {"queue_name": queue, "after": after, "limit": 10}
        yield f"keys page {name}", partial(Links.page_of_keys, given=page)
    yield "keys with_entries", Links.with_entries
    yield "keys states", partial(Links.of_entries, name="states", given={"dates": True})
    yield "keys lock_waiting", partial(Links.of_entries, name="lock_waiting", given={})


def fill(engine: Engine, places: int) -> None:
    """Give each table ten to the power of `places` rows, of as many keys."""
    number = f"({' + '.join(_PLACES[:places])})"
    future = f"TIMESTAMP {_FUTURE}" if engine.dialect.name == "postgresql" else _FUTURE
    text = {"sqlite": f"'key-' || {number}", "postgresql": f"'key-' || {number}"}.get(
        engine.dialect.name, f"concat('key-', {number})"
    )
    source = f"FROM {', '.join(f'{_DIGITS} d{place}' for place in range(places))}"
    mine = "'bus_events', 'bus'"
    no = "false" if engine.dialect.name != "sqlite" else "0"
    rows = {
        "queue_ordered (table_name, queue_name, order_key, record_id, lane, unstarted)": (
            f"{mine}, {text}, {number}, '', {no}"
        ),
        "queue_order_heads (table_name, queue_name, order_key, record_id)": (
            f"{mine}, {text}, {number}"
        ),
        "queue_waits (table_name, waiter_id, awaited_id, on_failed, lane, look_date)": (
            f"'bus_events', {number}, {number}, 'hold', '', {future}"
        ),
        "queue_keys (table_name, queue_name, entry_key, taken_by, record_id, keep, look_date)": (
            f"{mine}, {text}, 'other', {number}, 'living', {future}"
        ),
    }
    with engine.begin() as connection:
        for target, values in rows.items():
            connection.exec_driver_sql(f"INSERT INTO {target} SELECT {values} {source}")


def analyse(engine: Engine) -> None:
    words = {"postgresql": "VACUUM ANALYZE", "sqlite": "ANALYZE"}
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in TABLES:
            word = words.get(engine.dialect.name, "ANALYZE TABLE")
            connection.exec_driver_sql(f"{word} {table}")


@pytest.mark.timeout(300)
# PostgreSQL takes a table without statistics for one of a few rows, in which all indices cost the
# same. It may walk one of 1,000 for a list of ids, but not again for each key.
@pytest.mark.parametrize(
    ("places", "analysed", "most"), [(3, False, 1_000 + MOST_READ), (4, True, MOST_READ)]
)
def test_the_statements_on_links_seek_by_index_and_read_a_bounded_number_of_rows(
    make_bus: MakeBus, engine: Engine, places: int, *, analysed: bool, most: int
) -> None:
    bus = make_bus(statement_timeout_seconds=300.0)
    store, connecting = engine_of(bus).store, database_of(bus).engine
    doctor = doctor_of(connecting.dialect.name)
    if analysed:
        analyse(connecting)
    fill(engine, places)
    faults, costs = list[str](), dict[str, int]()
    with connecting.connect() as connection:
        for name, work in operations():
            with catching(connection) as caught, cost_of(connection) as cost:
                work(Links(store, connection))
            costs[name] = cost[0]
            faults += [
                f"{name}: {fault.step} ({fault.detail}): {statement.text}"
                for statement in caught
                if any(table in statement.text for table in TABLES)
                for fault in statement.faults(connection, doctor, TABLES)
                if fault.step is not Step.SORT  # of a few rows, which were sought
            ]
            connection.rollback()
    assert not faults, "\n\n".join(faults)
    assert {name: cost for name, cost in costs.items() if cost > most} == {}

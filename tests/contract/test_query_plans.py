"""Each database runs the engine's statements by index, at a flat cost up to a million rows.

The statements are those that the engine sends, caught on their way and explained in the session
that sent them. The session is one that ran them all, and so prepared them, while the tables were
empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from bus.persistent import PersistentBus
from queue_core.model.entry import Entry, claimed
from queue_core.model.lanes import (
    AFTER_KEYED,
    ANY_NODE,
    KEYED,
    LIMITED,
    PARKED,
    SUSPECT,
    WAITING_LANE,
    keyed_lane,
)
from queue_core.model.states import State
from queue_core.storage.store import FIRST_DATE
from sql.database import Database
from sql.doctor.base import Step
from sql.registry import doctor_of
from sql.search_keys import StoredKey
from sql.statements import Statements
from sql.statements.claims import Claim
from sql.statements.outcomes import FinishRow
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import database_of, engine_of

SIZES = (0, 1_000, 1_000_000)
BATCH = 100
NODE = "node"
"""Who claims: into a lane of its own, so that the others keep what waits in front."""
ANN = keyed_lane("bus", "ann")
OWN, DEAD = "own", "dead"
"""Lanes of a node with much to do, and of one that died and left little that ran."""

TABLES = "bus_events", "bus_events_history"
_DIGITS = "(" + " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10)) + ")"
_NUMBER = "d0.d + 10 * d1.d + 100 * d2.d + 1000 * d3.d + 10000 * d4.d + 100000 * d5.d"
_COLUMNS = "class_name, event_json, lane, effective_date, created_date, search_key1, search_key2"
_LANES = f"CASE d0.d WHEN 0 THEN '{SUSPECT}' WHEN 1 THEN '{PARKED}' WHEN 2 THEN '' WHEN 3 THEN '' ELSE '{OWN}' END"
_PAST, _FUTURE = "'2025-01-01 00:00:00.000000'", "'2100-01-01 00:00:00.000000'"
_FASTER = {
    "sqlite": (
        "PRAGMA synchronous = OFF",
        "PRAGMA cache_size = -500000",
        "PRAGMA ignore_check_constraints = ON",
    ),
    "mysql": ("SET unique_checks = 0",),
}
"""Settings of the session that fills the tables."""
_SNAPSHOT = {
    "postgresql": "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "mysql": "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    "sqlite": "BEGIN",
}
"""How a session begins to see the tables as they are."""


def fill(engine: Engine, rows: int) -> None:
    """Raise the main table to `rows` rows in all lanes, with keys; one in ten is due far ahead.

    History gets a tenth of them, but no less than two batches. Statistics stay as old as they were.
    """
    if not rows:
        return
    past, future = (
        f"TIMESTAMP {date}" if engine.dialect.name == "postgresql" else date
        for date in (_PAST, _FUTURE)
    )
    places = len(str(rows)) - 1
    number = " + ".join(_NUMBER.split(" + ")[:places])
    values = f"'Order', '{{}}', {_LANES}, CASE d1.d WHEN 9 THEN {future} ELSE {past} END, {past}, 1, {number}"
    source = f"FROM {', '.join(f'{_DIGITS} d{place}' for place in range(places))} WHERE {number} >="
    with engine.begin() as connection:
        for setting in _FASTER.get(engine.dialect.name, ()):
            connection.exec_driver_sql(setting)
        present = connection.exec_driver_sql("SELECT count(*) FROM bus_events").scalar_one()
        connection.exec_driver_sql(
            f"INSERT INTO bus_events ({_COLUMNS}) SELECT {values} {source} {present}"
        )
        # Of ids that no entry gets, and which are the first.
        connection.exec_driver_sql(
            f"INSERT INTO bus_events_history (record_id, finished_date, processing_state, {_COLUMNS}) "
            f"SELECT -1 - ({number}), {past}, 'PROCESSED', {values} {source} {present} "
            f"AND {number} < {max(rows // 10, 2 * BATCH)}"
        )


@pytest.fixture
def bus(make_bus: MakeBus) -> PersistentBus:
    """A bus whose sessions may be silent while the tables are filled.

    MySQL ends sessions that are silent for too long.
    """
    return make_bus(statement_timeout_seconds=300.0)


@pytest.fixture
def statements(bus: PersistentBus) -> Statements:
    return engine_of(bus).store.statements


@pytest.fixture
def database(bus: PersistentBus) -> Database:
    """The engine's connections to tables that were vacuumed and analysed while they were empty.

    The tables of a drained queue are.
    """
    database = database_of(bus)
    if database.dialect.name == "postgresql":
        with database.engine.begin() as connection:
            for table in TABLES:
                # Autovacuum would cure the statistics some time later, in production as here.
                connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
                connection.exec_driver_sql(
                    f"ALTER TABLE {table} SET UNLOGGED"
                )  # to be filled faster
    analyse(database.engine)
    return database


def analyse(engine: Engine) -> None:
    """Let the database count the tables' rows, as autovacuum does."""
    words = {"postgresql": "VACUUM ANALYZE", "sqlite": "ANALYZE"}.get(
        engine.dialect.name, "ANALYZE TABLE"
    )
    with engine.connect() as connection:
        # VACUUM runs in no transaction; nor does the driver of SQLite begin one by itself.
        autocommit = connection.execution_options(isolation_level="AUTOCOMMIT")
        for table in TABLES:
            autocommit.exec_driver_sql(f"{words} {table}")


@dataclass(frozen=True)
class Tables:
    """What an operation works on: the first ids of the main table and of history, and the time."""

    statements: Statements
    connection: Connection
    now: datetime
    ids: Sequence[int]
    past_ids: Sequence[int]

    def claim(self, lane: str) -> list[Entry]:
        until = self.now + timedelta(minutes=5)
        claim = Claim(
            lane=lane, owner=NODE, limit=BATCH, since=FIRST_DATE, due_by=self.now, until=until
        )
        rows = self.statements.claim(self.connection, claim)
        assert bool(rows) == bool(self.ids)
        return [claimed(row, NODE, until) for row in rows]

    def finish(self) -> None:
        """Claim, and finish what was claimed; on an empty table ids that are gone.

        One half leaves no row of history.
        """
        claimed = self.claim(OWN)
        raised = {row.record_id: (1, row.created_date) for row in claimed} or dict.fromkeys(
            range(1, 11), (1, self.now)
        )
        endings = [
            FinishRow(record_id, count, created, State.PROCESSED.value, self.now, self.now)
            for record_id, (count, created) in sorted(raised.items())
        ]
        half = len(endings) // 2
        moved = [
            record_id
            for kept, some in ((True, endings[:half]), (False, endings[half:]))
            for record_id in self.statements.finish(
                self.connection, owner=NODE, batch=self.statements.batch(some, kept=kept)
            )
        ]
        assert len(moved) == len(claimed)

    def give_back(self) -> None:
        claims = [(row.record_id, 1) for row in self.claim(OWN)[:10]]
        self.statements.release(
            self.connection,
            owner=NODE,
            lane=ANY_NODE,
            suspect_lane=SUSPECT,
            claims=claims or [(1, 1)],
        )

    def retry(self) -> None:
        for row in self.claim(OWN)[:10]:
            self.statements.change_claimed(
                self.connection,
                owner=NODE,
                record_id=row.record_id,
                claim_count=1,
                created_date=row.created_date,
                values={"processing_state": "AVAILABLE", "lane": OWN, "effective_date": self.now},
            )

    def reap(self) -> None:
        """The reaper's and a restarted node's work on a lane.

        Its entries ran, are due, or are due later.
        """
        page = partial(self.statements.locked_page, self.connection, lane=DEAD, limit=10)
        page(state="IN_PROCESSING")
        page = partial(
            self.statements.locked_page, self.connection, lane=OWN, state="AVAILABLE", limit=10
        )
        due = [row.record_id for row in page(due_by=self.now)]
        later = [row.record_id for row in page(due_after=self.now)]
        self.statements.copy_anew(self.connection, ids=due, lane=ANY_NODE, crashes=0)
        ended = {"processing_state": "REAPED", "finished_date": self.now}
        self.statements.to_history(self.connection, ids=due, values=ended)
        self.statements.change_lane(
            self.connection, ids=later or [1], from_lane=OWN, to_lane=ANY_NODE, suspect_lane=SUSPECT
        )

    def sweep(self) -> None:
        self.statements.in_processing(self.connection, lane=DEAD)

    def park(self) -> None:
        page = partial(self.statements.page, self.connection, lane=PARKED, limit=BATCH)
        for row in page(after=None)[-1:]:
            page(after=(row.effective_date, row.record_id))

    def place(self) -> None:
        """What a claim of a limited queue asks and writes besides."""
        statements, connection = self.statements, self.connection
        claims = [row.claim for row in self.claim(OWN)[:10]] or [(1, 1)]
        statements.terms(connection, lane=LIMITED)
        statements.arrived(connection, lane=LIMITED, arrival_date=self.now)
        statements.take_places(connection, lane=LIMITED, owner=NODE, claims=claims)
        statements.bunches(connection, lane=LIMITED)
        held = statements.held_places(connection, lane=LIMITED)
        assert bool(held[NODE]) == bool(self.ids)
        statements.free_places(connection, lane=LIMITED)

    def place_of_key(self) -> None:
        """What claims and endings of entries with limit keys ask and write besides."""
        statements, connection = self.statements, self.connection
        claims = [(ANN, *row.claim) for row in self.claim(OWN)[:10]] or [(ANN, 1, 1)]
        statements.key_terms(connection, lanes=[LIMITED])
        statements.add_keys(connection, {ANN: ("bus", "ann")})
        statements.lock_keys(connection, lanes=[ANN])
        statements.take_key_places(connection, owner=NODE, claims=claims)
        taken = statements.key_places(connection, lanes=[ANN])
        assert any(stands for _, _, _, stands in taken) == bool(self.ids)
        statements.let_wait(connection, owner=NODE, claims=claims)
        first = statements.first_of_keys(connection, lanes=[ANN])
        assert bool(first) == bool(self.ids)
        statements.wake(connection, ids=first.values() or [1], suspect_lane=SUSPECT)
        statements.free_key_places(connection, lanes=[ANN], ids=[one for _, one, _ in claims])
        statements.change_keys(connection, dates={ANN: (self.now, self.now)})

    def look_at_keys(self) -> None:
        """What a node asks of limit keys now and then."""
        statements, connection = self.statements, self.connection
        statements.page_of_keys(connection, after="", limit=10)
        statements.keys_to_look_at(connection, now=self.now, limit=10)
        statements.next_look_at_keys(connection)
        statements.remove_idle_keys(connection, lanes=[ANN])
        statements.lanes(connection, besides=(ANN, ANN + "~"))
        statements.lane_counts(connection, lane=ANN, end=ANN + "~", until=self.now, limit=BATCH)

    def bring_back(self) -> None:
        """The lanes in a range, and the first entries of one of them."""
        for lane in self.statements.lanes_between(self.connection, PARKED, PARKED + "~"):
            self.statements.free_page(self.connection, lane=lane, limit=BATCH)

    def look(self) -> None:
        """The lanes, what waits in each, and when the next entry is due."""
        for lane in self.statements.lanes(self.connection):
            self.statements.lane_counts(self.connection, lane=lane, until=self.now, limit=BATCH)
        lanes = (OWN, ANY_NODE, DEAD, PARKED)
        self.statements.due_and_next(self.connection, lanes=lanes, now=self.now)

    def announced(self) -> None:
        self.statements.owned(self.connection, ids=self.ids, owner=NODE)

    def remove(self) -> None:
        ids = self.statements.lock_available(self.connection, ids=self.ids[:10])
        ended = {"processing_state": "REMOVED", "finished_date": self.now}
        self.statements.to_history(self.connection, ids=ids, values=ended)

    def change(self) -> None:
        for record_id in self.ids[:10]:
            self.statements.lock_available(self.connection, ids=[record_id])
            self.statements.change(
                self.connection, record_id=record_id, values={"effective_date": self.now}
            )

    def search(self, *, past: bool) -> None:
        first = 5
        self._search({"search_key2": first}, past=past)
        self._search({"search_key1": 1, "search_key2": first}, past=past)

    def wait(self) -> None:
        """What is asked of entries that others wait for, and of those."""
        statements, connection, ids = self.statements, self.connection, list(self.ids[:10]) or [1]
        statements.live_ids(connection, ids=ids)
        statements.lock_free(connection, ids=ids)
        past_ids = list(self.past_ids[:10]) or [1]
        statements.ended_ids(connection, ids=past_ids)
        statements.ends(connection, ids=past_ids)
        statements.waiting(connection, lane=WAITING_LANE, limit=BATCH)

    def miss(self) -> None:
        """What the doctor asks about rows that a hand has deleted."""
        statements, connection = self.statements, self.connection
        statements.unordered(connection, lane=WAITING_LANE, limit=BATCH)
        statements.headless(connection, lane=WAITING_LANE, limit=BATCH)
        statements.keyless(connection, lane=KEYED, end=AFTER_KEYED, limit=BATCH)

    def show(self) -> None:
        for past, ids in ((False, self.ids), (True, self.past_ids)):
            for record_id in ids[:3]:
                self._search({"record_id": record_id}, past=past)

    def newest(self) -> None:
        self._search({}, past=True, newest_first=True)

    def forget(self, *, past: bool) -> None:
        """All of one customer's rows, and some of them once more, by their ids."""
        keyed = partial(
            self.statements.keyed,
            self.connection,
            past=past,
            keys={"search_key2": StoredKey(6, "six")},
            queue_name=None,
            until=self.now,
        )
        ids = [row.record_id for row in keyed()][:10]
        keyed(ids=ids or [1])
        if past:
            self.statements.delete_ended(
                self.connection, ids=ids or [1], keys={"search_key2": StoredKey(6, "six")}
            )

    def dead_letters(self) -> None:
        self.statements.dead_letters(self.connection, limit=BATCH)
        self.statements.dead_letter_ids(self.connection, limit=BATCH)

    def windows(self, *, past: bool) -> None:
        """A window of ids, what matches in it, and some of that once more, by ids."""
        statements, states = self.statements, ["AVAILABLE", "PROCESSED"]
        first_id, last_id = statements.id_bounds(self.connection, past=past) or (1, 1)
        end = statements.range_page(
            self.connection, first_id=first_id, last_id=last_id, limit=BATCH, past=past
        )
        matching = partial(
            statements.matching,
            self.connection,
            past=past,
            where=lambda table: [table.c.processing_state.in_(states)],
            unretried=past,
        )
        found = matching(window=(first_id, end))
        matching(ids=found[:10] or [1])

    def reschedule(self) -> None:
        ids = self.statements.lock_available(self.connection, ids=self.ids[:10])
        self.statements.reschedule(self.connection, ids=ids or [1], due=self.now)

    def _search(self, values: Mapping[str, int], *, past: bool, newest_first: bool = False) -> None:
        found = self.statements.search(
            self.connection,
            past=past,
            where=lambda table: [table.c[name] == value for name, value in values.items()],
            limit=BATCH,
            newest_first=newest_first,
        )
        assert bool(found) == bool(self.ids)

    def history_page(self) -> None:
        self.statements.history_page(
            self.connection, before=self.now, states=["PROCESSED"], limit=BATCH
        )

    def delete_history(self) -> None:
        deleted = self.statements.delete_history(
            self.connection, ids=self.past_ids or [1], before=self.now, states=["PROCESSED"]
        )
        assert deleted == len(self.past_ids)


@dataclass(frozen=True)
class Operation:
    """A statement of the engine; `right` are steps of its plan that are right, with the reason."""

    name: str
    work: Callable[[Tables], object]
    right: frozenset[Step] = frozenset()


_IN_ORDER = frozenset({Step.WALK})
"""The rows are wanted in the order of their ids, and the page's end stops the walk."""
_FEW = frozenset({Step.SORT})
"""What has the keys is sorted by its ids."""

OPERATIONS = (
    *(
        Operation(f"claim from {lane!r}", partial(Tables.claim, lane=lane))
        for lane in (OWN, ANY_NODE, SUSPECT)
    ),
    Operation("finish", Tables.finish),
    Operation("give back", Tables.give_back),
    Operation("retry", Tables.retry),
    Operation("reap", Tables.reap),
    Operation("sweep", Tables.sweep),
    Operation("page of the parked", Tables.park),
    Operation("places of a limited queue", Tables.place, _IN_ORDER),
    Operation("places of limit keys", Tables.place_of_key, _IN_ORDER),
    Operation("look at limit keys", Tables.look_at_keys, _IN_ORDER | _FEW),
    Operation("lanes and page of the paused", Tables.bring_back, _IN_ORDER),
    # The lowest lane is the first entry of the index; what waits is grouped by its queue's name.
    Operation("look at the lanes", Tables.look, _IN_ORDER | _FEW),
    Operation("read what was announced", Tables.announced),
    Operation("remove", Tables.remove),
    Operation("change", Tables.change),
    Operation("wait for others", Tables.wait),
    # A finding for each key: what was found is grouped.
    Operation("look for what hands have deleted", Tables.miss, _FEW),
    Operation("show by id", Tables.show),
    Operation("search by keys", partial(Tables.search, past=False), _FEW),
    Operation("search history by keys", partial(Tables.search, past=True), _FEW),
    Operation("forget what waits", partial(Tables.forget, past=False), _FEW),
    Operation("forget what has ended", partial(Tables.forget, past=True), _FEW),
    Operation("dead letters", Tables.dead_letters, _IN_ORDER | _FEW),
    Operation("window of what waits", partial(Tables.windows, past=False), _IN_ORDER),
    Operation("window of history", partial(Tables.windows, past=True), _IN_ORDER),
    Operation("reschedule", Tables.reschedule),
    Operation("newest history", Tables.newest, _IN_ORDER),
    Operation("page of history", Tables.history_page, _IN_ORDER),
    Operation("delete a page of history", Tables.delete_history),
)


class Session:
    """One session that stays open while the tables grow."""

    def __init__(self, database: Database, statements: Statements, connection: Connection) -> None:
        self._statements = statements
        self._connection = connection
        self._doctor = doctor_of(database.dialect.name)
        self._caught: list[tuple[str, Any]] = []

    def prepare(self, operation: Operation) -> None:
        """Run an operation until psycopg prepares it (5 times) and its plan is kept (5 more)."""
        for _ in range(11):
            operation.work(self._tables())
            self._connection.commit()  # after a ROLLBACK psycopg prepares anew

    def run(self, operation: Operation, size: int) -> tuple[list[str], int]:
        """Run and explain an operation.

        Returns the faults of its plans, and its reads in the database's measure.
        """
        tables = self._tables()
        with self._catching(), cost_of(self._connection) as cost:
            operation.work(tables)
        assert self._caught or not size
        faults = [
            fault for caught in self._caught for fault in self._explain(*caught, operation, size)
        ]
        self._connection.commit()
        return faults, cost[0]

    def _tables(self) -> Tables:
        connection = self._connection
        ids, past_ids = (
            connection.exec_driver_sql(
                f"SELECT record_id FROM {table} ORDER BY record_id LIMIT {BATCH}"
            )
            .scalars()
            .all()
            for table in TABLES
        )
        return Tables(self._statements, connection, datetime(2026, 1, 1, tzinfo=UTC), ids, past_ids)

    @contextmanager
    def _catching(self) -> Iterator[None]:
        def catch(
            _c: object, _cursor: object, statement: str, parameters: Any, _x: object, many: object
        ) -> None:
            if "bus_events" in statement:
                self._caught.append((statement, parameters[0] if many else parameters))

        self._caught = []
        event.listen(self._connection, "before_cursor_execute", catch)
        try:
            yield
        finally:
            event.remove(self._connection, "before_cursor_execute", catch)

    def _explain(
        self, statement: str, parameters: Any, operation: Operation, size: int
    ) -> Iterator[str]:
        plan = (
            self._connection.exec_driver_sql(self._doctor.explain + statement, parameters)
            .mappings()
            .all()
        )
        for table in TABLES:
            for fault in self._doctor.faults([dict(row) for row in plan], table):
                if fault.step not in operation.right and not self._harmless(
                    fault.step, statement, size
                ):
                    yield f"{size} rows: {operation.name}: {fault.step} ({fault.detail}): {statement}"

    def _harmless(self, step: Step, statement: str, size: int) -> bool:
        """Return whether it locks nothing, and walks an empty table or sorts a small one.

        Plans are made anew each time.
        """
        locks = self._connection.dialect.name != "postgresql" and (
            "FOR UPDATE" in statement or not statement.startswith("SELECT")
        )
        return not locks and (size == 0 if step is not Step.SORT else size < SIZES[-1])


@contextmanager
def cost_of(connection: Connection) -> Iterator[list[int]]:
    """What the block has read: rows on the servers, hundreds of instructions on SQLite."""
    cost = list[int]()
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        steps = list[None]()
        driver.set_progress_handler(lambda: steps.append(None), 100)
        try:
            yield cost
        finally:
            driver.set_progress_handler(None, 0)
        cost.append(len(steps))
        return
    before = _rows_read(connection)
    yield cost
    cost.append(_rows_read(connection) - before)


def _rows_read(connection: Connection) -> int:
    if connection.dialect.name == "postgresql":
        return int(
            connection.exec_driver_sql(
                "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"
            ).scalar_one()
        )
    rows = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'")
    return sum(int(value) for _name, value in rows)


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_every_statement_reads_by_index_and_with_a_million_rows_no_more_than_with_a_thousand(
    statements: Statements, database: Database, engine: Engine
) -> None:
    costs = dict[tuple[str, int], int]()
    faults = list[str]()
    with database.engine.connect() as connection:
        session = Session(database, statements, connection)
        for operation in OPERATIONS:
            session.prepare(operation)
        for size in SIZES:
            fill(engine, size)
            for operation in OPERATIONS:
                found, costs[operation.name, size] = session.run(operation, size)
                faults += found

        if database.dialect.name == "postgresql":
            prepared, generic = connection.exec_driver_sql(
                "SELECT count(*), sum(generic_plans) FROM pg_prepared_statements "
                "WHERE statement LIKE '%%bus_events%%' AND parameter_types <> '{}'"
            ).one()
            assert prepared >= len(OPERATIONS)
            assert generic == 0
    assert not faults, "\n\n".join(faults)
    _, small, large = SIZES
    grown = {
        operation.name: (costs[operation.name, small], costs[operation.name, large])
        for operation in OPERATIONS
        if costs[operation.name, large] > 2 * costs[operation.name, small] + BATCH
    }
    assert grown == {}


@pytest.mark.timeout(300)
def test_every_statement_reads_by_index_in_tables_drained_under_a_snapshot_that_another_session_holds(
    statements: Statements, database: Database, engine: Engine
) -> None:
    faults = list[str]()
    with engine.connect() as holder, database.engine.connect() as connection:
        session = Session(database, statements, connection)
        fill(engine, SIZES[1])
        holder.exec_driver_sql(_SNAPSHOT[engine.dialect.name])
        holder.exec_driver_sql("SELECT count(*) FROM bus_events")
        for table in TABLES:
            with engine.begin() as drain:
                drain.exec_driver_sql(f"DELETE FROM {table}")
        # What is gone still fills pages, and the database knows that none of it is there.
        analyse(engine)
        for size in SIZES[:2]:
            fill(engine, size)
            for operation in OPERATIONS:
                found, _cost = session.run(operation, size)
                faults += found
    assert not faults, "\n\n".join(faults)


@needs.many_writers
def test_what_names_entries_by_id_waits_for_no_other_entry_that_somebody_has_locked(
    make_bus: MakeBus, engine: Engine
) -> None:
    """Although the server takes the table for an empty one."""
    bus = make_bus(statement_timeout_seconds=15.0)
    statements, connecting = engine_of(bus).store.statements, database_of(bus).engine
    analyse(connecting)
    ids = [bus.post({"number": number}, event_name="Ping") for number in range(20)]
    for _ in range(2):
        with engine.connect() as connection:
            connection.exec_driver_sql("DELETE FROM bus_events")
            connection.rollback()  # for MySQL's count they are gone
    removed, kept = ids[::2], ids[1::2]
    ended = {"processing_state": "REMOVED", "finished_date": datetime(2025, 1, 1, tzinfo=UTC)}
    lanes = {"from_lane": ANY_NODE, "to_lane": PARKED, "suspect_lane": SUSPECT}
    claims = [(record_id, 1) for record_id in kept]
    with engine.begin() as other, connecting.connect() as connection:
        other.exec_driver_sql("INSERT INTO bus_events (class_name) VALUES ('Ping')")
        assert statements.lock_available(connection, ids=removed) == removed
        assert statements.to_history(connection, ids=removed, values=ended) == len(removed)
        assert statements.change_lane(connection, ids=kept, **lanes) == len(kept)
        assert not statements.release(
            connection, owner=NODE, lane=ANY_NODE, suspect_lane=SUSPECT, claims=claims
        )

"""Rows from elsewhere end FAILED with a reason, or stay where they are; no loop stops for one."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from bus.persistent import PersistentBus
from queue_core.model.entry import Entry
from queue_core.model.event_types import EventTypes
from queue_core.model.lanes import PARKED
from queue_core.model.states import State
from queue_core.running.subscriber import EntryContext
from sql.tables import entry_tables, queue_schedules
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, database_of, ended, engine_of, eventually

TABLES = entry_tables("bus_events")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOUND = {"class_name": "Order", "event_json": '{"number":1}', "effective_date": NOW}
LARGEST = 2**31 - 1


@pytest.fixture
def bus(make_bus: MakeBus) -> PersistentBus:
    """A bus that soon finds what was written without it."""
    return make_bus(poll_interval_seconds=0.05)


def _inserted(connection: Connection, values: dict[str, Any]) -> int:
    # MySQL has no RETURNING.
    key = connection.execute(insert(TABLES.main).values(values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def _write(engine: Engine, **columns: Any) -> int:
    """Insert a row by hand, as SQL allows it, and return its id."""
    with engine.begin() as connection:
        return _inserted(connection, {**SOUND, **columns})


def _stored(engine: Engine, record_id: int) -> Any:
    with engine.connect() as connection:
        return connection.execute(
            select(TABLES.main).where(TABLES.main.c.record_id == record_id)
        ).one_or_none()


def _started(bus: PersistentBus) -> Recorder:
    recorder = Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    return recorder


def _of(bus: PersistentBus, record_id: int) -> Entry:
    (entry,) = eventually(
        lambda: bus.history(record_ids=[record_id]), f"entry {record_id} has ended"
    )
    return entry


def _still_delivers(bus: PersistentBus) -> bool:
    """Whether what comes by each of the two ways, claimed and from memory, is still handled."""
    own = bus.post(Order(2))
    with database_of(bus).begin() as connection:
        claimed = _inserted(connection, SOUND)
    return {_of(bus, own).processing_state, _of(bus, claimed).processing_state} == {State.PROCESSED}


def test_a_sound_row_written_by_hand_is_delivered(bus: PersistentBus, engine: Engine) -> None:
    recorder = _started(bus)
    record_id = _write(engine)
    assert recorder.wait() == [Order(1)]
    assert _of(bus, record_id).processing_state is State.PROCESSED


UNREADABLE: dict[str, tuple[dict[str, Any], str]] = {
    "broken JSON": ({"event_json": '{"number":'}, "DecodeError"),
    "empty text": ({"event_json": ""}, "DecodeError"),
    "binary rubbish": ({"event_json": None, "event_bytes": b"\x00\xff\xfe"}, "DecodeError"),
    "another shape": ({"event_json": "[1, 2]"}, "Expected `object`"),
    "a missing field": ({"event_json": "{}"}, "missing required field `number`"),
    "a number past all bounds": ({"event_json": '{"number":1e999}'}, "number"),
    "nesting without end": ({"event_json": '{"a":' * 5_000}, "Error"),
    "no payload": ({"event_json": None}, "no payload"),
    "an unknown codec": ({"codec": "pickle"}, "no codec 'pickle'"),
    "an empty codec": ({"codec": ""}, "no codec ''"),
    "broken subscribers": ({"subscribers_done": "{broken"}, "subscribers_done"),
    "subscribers that are a list": ({"subscribers_done": "[1]"}, "subscribers_done"),
    "broken headers": ({"headers": "{broken"}, "headers"),
    "headers that are no texts": ({"headers": '{"a":[1]}'}, "headers"),
}


@pytest.mark.parametrize(
    ("columns", "reason"), [pytest.param(*case, id=what) for what, case in UNREADABLE.items()]
)
def test_an_unreadable_row_ends_failed_with_the_reason_and_its_bytes_kept(
    bus: PersistentBus, engine: Engine, columns: dict[str, Any], reason: str
) -> None:
    recorder = _started(bus)
    record_id = _write(engine, **columns)
    entry = _of(bus, record_id)
    assert entry.processing_state is State.FAILED
    assert reason in (entry.last_error or "").partition("\n")[0]
    kept = {**SOUND, **columns}
    assert (entry.event_json, entry.event_bytes) == (kept["event_json"], kept.get("event_bytes"))
    assert recorder.calls == 0
    assert _still_delivers(bus)


def test_a_corrupt_payload_of_an_own_posting_ends_failed_after_a_retry(
    bus: PersistentBus, engine: Engine
) -> None:
    """Its bytes are read anew at each run."""

    def corrupt(_event: Order, context: EntryContext) -> None:
        with engine.begin() as connection:
            broken = update(TABLES.main).where(TABLES.main.c.record_id == context.record_id)
            connection.execute(broken.values(event_json="{corrupt"))
        raise RuntimeError("again, please")

    bus.subscribe(Order, corrupt)
    bus.start()
    entry = _of(bus, bus.post(Order(1)))
    assert (entry.processing_state, entry.error_count, entry.event_json) == (
        State.FAILED,
        1,
        "{corrupt",
    )
    assert (entry.last_error or "").startswith("PayloadNotDecodableError")


def test_a_name_from_a_row_is_never_imported_and_its_entry_is_parked(
    bus: PersistentBus, engine: Engine
) -> None:
    names = [
        "os.system",
        "subprocess:Popen",
        "antigravity",
        "../../etc",
        "💥",
        "__import__('this')",
    ]
    _started(bus)
    before = set(sys.modules)
    ids = [_write(engine, class_name=name) for name in names]
    eventually(
        lambda: all(_stored(engine, found).lane == PARKED for found in ids),
        "the entries are parked",
    )
    assert not {"antigravity", "this"} & (set(sys.modules) - before)
    assert _still_delivers(bus)


IGNORED: dict[str, dict[str, Any]] = {
    "no state of ours": {"processing_state": "BOGUS"},
    "an empty state": {"processing_state": ""},
    "a state in small letters": {"processing_state": "available"},
    "a state and a space": {"processing_state": "AVAILABLE "},
    "the state of others": {"processing_state": "WAITING"},
    "a terminal state": {"processing_state": "PROCESSED"},
    "running, and in the lane of any node": {"processing_state": "IN_PROCESSING"},
    "running by nobody, in a lane that is none": {
        "processing_state": "IN_PROCESSING",
        "lane": "!nonsense",
    },
    "in a lane that is none": {"lane": "!nonsense"},
}


def test_rows_of_impossible_states_are_left_alone_and_hide_no_other(
    bus: PersistentBus, engine: Engine
) -> None:
    _started(bus)
    ids = {_write(engine, **columns): columns for columns in IGNORED.values()}
    assert _still_delivers(bus)
    told = {entry.record_id for entry in bus.find()}
    for record_id, columns in ids.items():
        state = columns.get("processing_state", "AVAILABLE")
        assert _stored(engine, record_id).processing_state == state
        assert (record_id in told) == (state in set(State)), columns


HUGE: dict[str, dict[str, Any]] = {
    "claims": {"claim_count": LARGEST},
    "failures": {"error_count": LARGEST},
    "redispatches": {"redispatch_count": LARGEST},
    "crashes": {"crash_count": LARGEST},
    "everything": {
        "claim_count": LARGEST,
        "error_count": LARGEST,
        "redispatch_count": LARGEST,
        "search_key1": 2**63 - 1,
        "search_key2": -(2**63),
        "origin_id": 2**63 - 1,
        "replay_of": 2**63 - 1,
    },
    "less than nothing": {
        "claim_count": -LARGEST,
        "error_count": -LARGEST,
        "redispatch_count": -5,
        "crash_count": -5,
    },
}


@pytest.mark.parametrize("fails", [False, True])
def test_rows_of_huge_counts_end_and_stop_nothing(
    bus: PersistentBus, engine: Engine, *, fails: bool
) -> None:
    runs = list[int]()

    @bus.subscribe(Order)
    def handle(_order: Order, context: EntryContext) -> None:
        runs.append(context.record_id)
        if fails and runs.count(context.record_id) == 1:
            raise RuntimeError("the first run fails")

    ids = {_write(engine, **columns): columns for columns in HUGE.values()}
    bus.start()
    for record_id, columns in ids.items():
        entry = _of(bus, record_id)
        final = fails and columns.get("error_count") == LARGEST
        assert entry.processing_state is (State.FAILED if final else State.PROCESSED), columns
        assert runs.count(record_id) == 1 + (fails and not final), columns
    assert _still_delivers(bus)


OWNED_BY_NOBODY: dict[str, dict[str, Any]] = {
    "a node that never was": {"lane": "ghost", "processing_owner": "ghost"},
    "a node with a name full of tricks": {
        "lane": "'; -- %s 💥",
        "processing_owner": "'; -- %s 💥",
    },
    "a lane whose entry says another owner": {"lane": "ghost", "processing_owner": "another"},
    "a lane whose entry says no owner": {"lane": "ghost", "processing_owner": None},
}


@pytest.mark.parametrize(
    "columns", [pytest.param(columns, id=what) for what, columns in OWNED_BY_NOBODY.items()]
)
@pytest.mark.parametrize("state", [State.AVAILABLE, State.IN_PROCESSING])
def test_a_row_of_an_owner_that_never_was_is_reaped_and_run(
    make_bus: MakeBus, engine: Engine, columns: dict[str, Any], state: State
) -> None:
    bus = make_bus(lease_seconds=0.5, reap_period_seconds=0.05, poll_interval_seconds=0.2)
    record_id = _write(
        engine, **columns, processing_state=state.value, creating_owner="nobody at all"
    )
    recorder = _started(bus)
    assert recorder.wait() == [Order(1)]
    assert _of(bus, record_id).processing_state is State.REAPED
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.origin_id) == (State.PROCESSED, record_id)


def test_a_row_in_a_live_nodes_lane_that_says_another_owner_hinders_nothing(
    make_bus: MakeBus, engine: Engine
) -> None:
    bus = make_bus(node_name="here", poll_interval_seconds=0.05)
    _started(bus)
    for owner in (None, "another"):
        _write(engine, lane="here", processing_state="IN_PROCESSING", processing_owner=owner)
    assert _still_delivers(bus)


def test_a_name_that_fits_two_types_ends_failed_with_both_in_the_reason(
    bus: PersistentBus, engine: Engine
) -> None:
    def variant(qualified: str) -> type:
        return type("Twofold", (Order,), {"__qualname__": qualified})

    kept = [variant("One.Twofold"), variant("Other.Twofold")]
    _started(bus)
    record_id = _write(engine, class_name="Twofold")
    entry = _of(bus, record_id)
    assert entry.processing_state is State.FAILED
    assert all(part.__qualname__ in (entry.last_error or "") for part in kept)
    _write(engine, class_name="Twofold", lane=PARKED)
    engine_of(bus).parked.look_at_all()
    ended(bus, 2)
    assert _still_delivers(bus)


def test_a_parked_row_of_a_name_that_no_query_expects_is_left_there(
    make_bus: MakeBus, engine: Engine
) -> None:
    bus = make_bus(reap_period_seconds=0.05, poll_interval_seconds=0.05)
    _started(bus)
    record_id = _write(engine, class_name="%", queue_name="' OR ''='", lane=PARKED)
    assert _still_delivers(bus)
    assert _stored(engine, record_id).lane == PARKED


@pytest.mark.parametrize(
    "broken",
    [
        {"rule": "{broken"},
        {"rule": "{}"},
        {"rule": "[]"},
        {"rule": '{"kind":"cron","expression":"never","timezone":"UTC","missed":"FIRE_ONCE"}'},
        {"codec": "pickle"},
        {"event_json": "{broken"},
    ],
)
def test_a_corrupt_schedule_stops_no_other_schedule(
    make_service: MakeService, engine: Engine, broken: dict[str, Any]
) -> None:
    service = make_service(poll_interval_seconds=0.05)
    recorder = Recorder()
    queue = service.create_queue("shop", "bills", recorder, event_types=[Order])
    queue.recur("a broken one", Order(0), every=timedelta(milliseconds=50))
    with engine.begin() as connection:
        connection.execute(update(queue_schedules).values(broken))
    service.start()
    queue.recur("sound", Order(7), every=timedelta(milliseconds=50))
    eventually(lambda: Order(7) in recorder.events, "the sound schedule fires")
    assert Order(0) not in recorder.events or broken == {"codec": "pickle"}


def test_event_types_find_no_type_by_a_dotted_path() -> None:
    types = EventTypes()
    types.register(Order)
    assert not types.knows(f"{Order.__module__}.{Order.__qualname__}")


NO_DATES: dict[str, list[object]] = {
    "sqlite": [
        "soon",
        "infinity",
        "2026-01-01T00:00:00Z",
        "2026-02-30 00:00:00.000000",
        "2026-01-01 24:00:00.000000",
        "0000-01-01 00:00:00.000000",
        "now",
        7,
        b"soon",
    ],
    "postgresql": [
        "infinity",
        "-infinity",
        "0044-03-15 12:00:00+00 BC",
        "10000-01-01 00:00:00+00",
    ],
    "mariadb": [
        "0000-00-00 00:00:00",
        "2026-00-15 00:00:00",
        "2026-02-00 00:00:00",
        "0000-01-01 00:00:00",
    ],
}
NO_DATES["mysql"] = NO_DATES["mariadb"]


@pytest.mark.parametrize("column", ["created_date", "effective_date", "processing_available_date"])
def test_a_date_that_nobody_could_read_is_refused_by_the_database(
    bus: PersistentBus, engine: Engine, database_name: str, column: str
) -> None:
    """One such row at the head of a lane would stop every claim from it."""
    _started(bus)
    row = f"INSERT INTO bus_events (class_name, {column}) VALUES ('Order', :date)"
    with engine.connect() as connection:
        if database_name == "mysql":
            # By default it refuses such dates itself; each session can allow them.
            connection.execute(text("SET SESSION sql_mode = 'STRICT_TRANS_TABLES'"))
            connection.commit()
        for date in NO_DATES[database_name]:
            with pytest.raises(DBAPIError, match="bus_events_readable"), connection.begin():
                connection.execute(text(row), {"date": date})
    assert _still_delivers(bus)


def test_a_count_that_is_no_number_is_refused_by_the_database(
    engine: Engine, database_name: str
) -> None:
    for count in ("error_count", "claim_count", "redispatch_count", "crash_count"):
        row = text(f"INSERT INTO bus_events (class_name, {count}) VALUES ('Order', :value)")
        for value in ("many", "1.5", ""):
            if database_name in {"mariadb", "mysql"} and value == "1.5":
                continue  # rounded, as its columns do
            with pytest.raises(DBAPIError), engine.begin() as connection:
                connection.execute(row, {"value": value})

"""Rows crafted by hand, of each kind that a schema permits: they stop no loop and run no code.

What a claim can take ends with a reason; what the schema refuses is refused. `test_rows`
has the rows that accidents make.
"""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from queue_core.model.states import State
from stickybus import NotificationQueue, NotificationService
from tests import requirements as needs
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, eventually

HERE = "here"
SOUND: dict[str, Any] = {
    "class_name": "Order",
    "event_json": '{"number":1}',
    "effective_date": "2026-01-01 00:00:00.000000",
}
# In every time zone that a session may have.
FIRST, LAST = "0001-01-02 00:00:00.000000", "9999-12-30 23:59:59.999999"
EVIL = (
    "os.system",
    "builtins.eval",
    "__import__('os').system('touch {marker}')",
    "subprocess:run",
    "!!python/object",
)
LARGE = "x" * 300_000


def columns(marker: Path) -> dict[str, list[Any]]:
    """Values for each column, sane ones for its type and insane ones."""
    evil = [name.format(marker=marker) for name in EVIL]
    payloads = [
        '{"py/reduce": [{"py/type": "os.system"}, {"py/tuple": ["touch ' + f'{marker}"]}}]}}',
        '{"number": {"__class__": "os.system", "args": ["touch ' + f'{marker}"]}}}}',
        '{"number":1,"__init__":"x"}',
        '{"number":"1"}',
        '{"number":9007199254740993000000000000}',
        '{"number":1.5}',
        '{"number":true}',
        '{"number":null}',
        '"\\ud800"',
        "{" * 10_000,
        "[" * 10_000,
        LARGE,
        "null",
        "",
        None,
    ]
    progress = ["{", "[]", "1", '{"orders":1}', '{"orders":{"failures":1e99,"due":"x"}}', LARGE]
    progress += [
        '{"orders":{"failures":-1,"due":"0001-01-01T00:00:00Z"}}',
        '{"orders":{"failures":-1,"due":"9999-01-01T00:00:00Z"}}',
    ]
    dates = [FIRST, LAST, None]
    counts = [-(2**31), -1, 2**31 - 1, 2**31, 10**30, "1e3", "x", None]
    return {
        "queue_name": [
            *evil[:1],
            "",
            "bus ",
            "'; DROP TABLE bus_events; --",
            "q" * 129,
            "q" * 200,
            None,
        ],
        "class_name": [
            *evil,
            "",
            "order",
            "Order ",
            "%s",
            "{0.__class__}",
            "C" * 255,
            "C" * 300,
            None,
        ],
        "event_json": payloads,
        "event_bytes": [
            b"",
            b"\x80\x04\x95\x00.",
            b"cos\nsystem\n(S'touch %s'\ntR." % str(marker).encode(),
            b"\xff" * 9,
        ],
        "codec": ["pickle", "msgpack", "yaml", "", "json ", "JSON", "c" * 32, "c" * 40, None],
        "user_token": ["", "x", "t" * 36, "t" * 50],
        "search_key1": [2**63 - 1, -(2**63), 2**63, "x", 1.5, None],
        "created_date": dates,
        "effective_date": dates,
        "processing_available_date": dates,
        "creating_owner": ["", "nobody", "'; --", "o" * 64, "o" * 65, None],
        "processing_owner": ["", HERE, "nobody", None],
        "lane": ["", HERE, "nobody", "!parked", "!suspect", "!paused", "!x", " ", "l" * 65, None],
        "processing_state": [
            "AVAILABLE",
            "IN_PROCESSING",
            "available",
            "",
            "DONE",
            "PROCESSED",
            "X" * 17,
            None,
        ],
        "error_count": counts,
        "claim_count": counts,
        "redispatch_count": counts,
        "crash_count": counts,
        "subscribers_done": progress,
        "headers": ["{", "[]", '{"a":1}', '{"traceparent":"garbage"}', LARGE],
        "origin_id": [0, -1, 2**63 - 1, "x"],
        "replay_of": [0, 2**63 - 1, "x"],
    }


def crafted(marker: Path) -> list[dict[str, Any]]:
    """Each value alone, and random combinations: the same in each run."""
    values, chance = columns(marker), random.Random(3)  # noqa: S311 -- not a secret
    rows = [{name: value} for name, each in values.items() for value in each]
    for _ in range(150):
        names = chance.sample(sorted(values), chance.randint(2, 5))
        rows.append({name: chance.choice(values[name]) for name in names})
    return rows


def write(engine: Engine, table: str, row: dict[str, Any]) -> bool:
    """Insert a row as SQL text; False if the schema refuses it."""
    names = ", ".join(row)
    marks = ", ".join(f":{name}" for name in row)
    try:
        with engine.begin() as connection:
            connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), row)
    except (DBAPIError, OverflowError):  # sqlite3 refuses an integer past 64 bits by itself
        return False
    return True


class Failures(logging.Handler):
    """What loops tell of turns that failed, and of what they could not write."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if line.startswith(("loop_failed", "outcome_unwritable", "hints_interrupted")):
            self.told.append(line)


@pytest.fixture
def failures() -> Iterator[Failures]:
    failures = Failures()
    logging.getLogger("queue_core").addHandler(failures)
    logging.getLogger("notifications").addHandler(failures)
    yield failures
    for name in ("queue_core", "notifications"):
        logging.getLogger(name).removeHandler(failures)


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was called of the functions that such rows name."""
    called = list[str]()
    for module, name in ((os, "system"), (subprocess, "run"), (subprocess, "Popen")):
        monkeypatch.setattr(
            module, name, lambda *_arguments, _name=name, **_options: called.append(_name)
        )
    return called


def claimable(connection: Any) -> list[Any]:
    """Entries that a node still has to take."""
    return list(
        connection.execute(
            text(
                "SELECT record_id, lane, processing_state FROM bus_events WHERE lane IN ('', "
                "'here', '!suspect', 'nobody') AND processing_state IN ('AVAILABLE', "
                "'IN_PROCESSING') AND effective_date < '2027-01-01 00:00:00' AND NOT (lane IN "
                "('', 'here', '!suspect') AND processing_state = 'IN_PROCESSING')"
            )
        )
    )


@pytest.mark.slow
def test_whatever_stands_in_the_table_loops_go_on_and_what_can_be_claimed_ends(
    make_bus: MakeBus,
    engine: Engine,
    tmp_path: Path,
    failures: Failures,
    no_programs: list[str],
) -> None:
    bus = make_bus(
        node_name=HERE,
        handler_threads=4,
        lease_seconds=1.0,
        reap_period_seconds=0.05,
        poll_interval_seconds=0.05,
    )
    marker, loaded = tmp_path / "marker", set(sys.modules)
    seen = Recorder()
    bus.subscribe(Order, seen, name="orders")
    bus.start()
    rows = [{**SOUND, **row} for row in crafted(marker)]
    permitted = [row for row in rows if write(engine, "bus_events", row)]
    assert len(permitted) > len(rows) // 3

    with engine.connect() as connection:
        isolated = connection.execution_options(isolation_level="AUTOCOMMIT")
        eventually(lambda: not claimable(isolated), "all that can be claimed has ended")
    innocent = bus.post(Order(77))
    eventually(lambda: bus.history(record_ids=[innocent]), "an innocent event is still delivered")
    assert not failures.told
    for entry in bus.history(states=[State.FAILED]):
        assert entry.last_error, entry
    assert all(type(order.number) is int for order in seen.events)
    assert not marker.exists()
    assert not no_programs
    assert not {"antigravity", "this", "pickle5", "yaml"} & (set(sys.modules) - loaded)


@pytest.mark.slow
@needs.untyped_columns
@pytest.mark.parametrize(
    "column", ["class_name", "event_json", "user_token", "headers", "lane", "processing_owner"]
)
def test_bytes_that_are_no_text_stop_neither_claims_nor_reapers(
    make_bus: MakeBus, engine: Engine, failures: Failures, column: str
) -> None:
    """SQLite stores what it is told to; reading it as text would raise at each try."""
    seen = Recorder()
    bus = make_bus(
        node_name=HERE, lease_seconds=0.9, reap_period_seconds=0.05, poll_interval_seconds=0.05
    )
    bus.subscribe(Order, seen)
    values = {
        **{name: f"'{value}'" for name, value in SOUND.items()},
        column: "CAST(X'ff' AS TEXT)",
    }
    with engine.begin() as connection:
        for _ in range(3):
            connection.exec_driver_sql(
                f"INSERT INTO bus_events ({', '.join(values)}) VALUES "
                f"({', '.join(values.values())})"
            )
    bus.start()
    write(engine, "bus_events", {**SOUND, "event_json": '{"number":7}', "lane": "nobody"})
    eventually(
        lambda: Order(7) in seen.events,
        "an innocent event of a dead node is reaped, claimed and run",
    )
    assert not failures.told


@needs.untyped_columns
def test_a_lane_that_is_no_text_is_refused(engine: Engine) -> None:
    assert not write(engine, "bus_events", {**SOUND, "lane": b"x"})


NODE: dict[str, Any] = {
    "name": "crafted",
    "epoch": 1,
    "beat": 1,
    "state": "LIVE",
    "hostname": "h",
    "host_identity": "h",
    "pid": 1,
    "lease_seconds": 0.1,
    "started_date": "2026-01-01 00:00:00.000000",
    "beat_date": "2026-01-01 00:00:00.000000",
    "serves": "[]",
}
NODES: dict[str, list[Any]] = {
    "name": ["", "!parked", " ", "n" * 64, "n" * 65, "'; --", "%s"],
    "epoch": [-1, 2**63 - 1, -(2**63), 2**63],
    "beat": [-1, 2**63 - 1],
    "state": ["", "live", "BOGUS", "DEAD", "STOPPED", "X" * 17],
    "hostname": ["", "h" * 255],
    "host_identity": ["", "h" * 255],
    "pid": [-1, 0, 2**63 - 1],
    "lease_seconds": [0.0, -1.0, 1e308],
    "started_date": [FIRST, LAST],
    "beat_date": [
        FIRST,
        LAST,
        "infinity",
        "-infinity",
        "0044-03-15 00:00:00 BC",
        "0000-00-00 00:00:00",
        "soon",
    ],
    "serves": ["", "{", "null", "[1]", '[{"queues":7}]', '{"a":' * 5_000, LARGE],
}


@pytest.mark.slow
def test_whatever_other_nodes_rows_say_beats_and_reapers_go_on(
    make_bus: MakeBus, engine: Engine, failures: Failures
) -> None:
    bus = make_bus(
        node_name=HERE, lease_seconds=1.0, reap_period_seconds=0.05, poll_interval_seconds=0.05
    )
    rows = [
        {**NODE, "name": f"crafted {number}", name: value}
        for number, (name, value) in enumerate(
            (name, value) for name, each in NODES.items() for value in each
        )
    ]
    permitted = [row for row in rows if write(engine, "queue_nodes", row)]
    assert len(permitted) > len(rows) // 3
    seen = Recorder()
    bus.subscribe(Order, seen)
    bus.start()
    write(engine, "bus_events", {**SOUND, "lane": "crafted 1", "processing_state": "IN_PROCESSING"})
    seen.wait()  # it was reaped
    bus.post(Order(2))
    seen.wait(2)
    assert not failures.told


RULE = '{"kind":"interval","expression":"%s","timezone":"%s","missed":"%s","start":"%s"}'
MORNING = "2026-01-01T00:00:00+00:00"
RULES = [
    RULE % ("0.05", "UTC", "FIRE_ONCE", "0001-01-01T00:00:00+00:00"),
    RULE % ("0.05", "UTC", "FIRE_ALL", "0001-01-01T00:00:00+14:00"),
    RULE % ("0.05", "UTC", "FIRE_ONCE", "9999-12-31T23:59:59.999999+00:00"),
    RULE.replace("interval", "cron")
    % ("0 0 * * *", "UTC", "FIRE_ALL", "9999-12-31T00:00:00+00:00"),
    RULE.replace("interval", "cron")
    % ("0 0 * * *", "UTC", "FIRE_ONCE", "0001-01-01T00:00:00+00:00"),
    '{"a":' * 5_000,
    "[" * 5_000,
    RULE % ("1e308", "UTC", "FIRE_ONCE", MORNING),
    RULE % ("nan", "UTC", "FIRE_ONCE", MORNING),
    RULE % ("inf", "UTC", "FIRE_ONCE", MORNING),
    RULE % ("1", "../../etc/passwd", "SOMETIMES", MORNING),
    RULE.replace("interval", "cron") % ("* * * * *", "../../etc/passwd", "FIRE_ONCE", MORNING),
    RULE.replace("interval", "cron") % ("* * * * *", "Mars/Olympus", "FIRE_ONCE", MORNING),
    RULE.replace("interval", "cron") % ("0 0 31 2 *", "UTC", "FIRE_ONCE", MORNING),
    RULE.replace("interval", "cron") % ("__import__('os')", "UTC", "FIRE_ONCE", MORNING),
    RULE % ("1", "UTC", "FIRE_ONCE", "soon"),
    '{"kind":1,"expression":2,"timezone":3,"missed":4,"start":5}',
    "null",
    "",
    LARGE,
]


SCHEDULE = {
    "table_name": "notifications",
    "queue_name": "shop:bills",
    "name": "crafted",
    "rule": RULE % ("3600", "UTC", "FIRE_ONCE", MORNING),
    "class_name": "Order",
    "codec": "json",
    "event_json": '{"number":0}',
    "next_due": "2026-01-01 00:00:00.000000",
}
"""A sound row of `queue_schedules`."""


class Bills(NamedTuple):
    """The queue that `SCHEDULE` belongs to, and what its handler was called with."""

    service: NotificationService
    queue: NotificationQueue
    fired: Recorder


@pytest.fixture
def bills(make_service: MakeService) -> Bills:
    service, fired = make_service(poll_interval_seconds=0.05), Recorder()
    return Bills(service, service.create_queue("shop", "bills", fired, event_types=[Order]), fired)


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, id=str(place)) for place, rule in enumerate(RULES)]
)
def test_whatever_rule_a_schedule_has_the_others_still_fire(
    bills: Bills, engine: Engine, failures: Failures, rule: str
) -> None:
    assert write(engine, "queue_schedules", SCHEDULE | {"rule": rule})
    bills.service.start()
    bills.queue.recur("sound", Order(7), every=timedelta(milliseconds=50))
    eventually(lambda: Order(7) in bills.fired.events, "the sound schedule fires")
    assert not failures.told


SCHEDULES: dict[str, list[Any]] = {
    "class_name": [*EVIL, "", "%s"],
    "codec": ["pickle", ""],
    "event_json": ["{", None, LARGE],
    "last_due": [FIRST, LAST],
    "next_due": [FIRST],
    "search_key1": [2**63 - 1],
}


def test_whatever_else_a_schedules_row_says_the_others_still_fire(
    bills: Bills, engine: Engine, failures: Failures
) -> None:
    bills.queue.recur("sound", Order(7), every=timedelta(milliseconds=50))
    for number, (name, value) in enumerate(
        (name, value) for name, each in SCHEDULES.items() for value in each
    ):
        row = {**SCHEDULE, "name": f"crafted {number}", name: value}
        assert write(engine, "queue_schedules", row), name
    bills.service.start()
    eventually(lambda: bills.fired.events.count(Order(7)) > 2, "the sound schedule fires")
    assert not failures.told

"""The engine's tables, filled with up to a million rows."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Engine

from queue_core.model.lanes import PARKED, SUSPECT, keyed_lane

SIZES = (0, 1_000, 1_000_000)
BATCH = 100
NODE = "node"
"""The node that claims. In its lane some wait for dates that are far ahead."""
ANN = keyed_lane("bus", "ann")
OWN, DEAD = "own", "dead"
"""Lanes of a node with much to do, and of one that died and left little that ran."""
TABLES = "bus_events", "bus_events_history"
_DIGITS = "(" + " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10)) + ")"
_NUMBER = "d0.d + 10 * d1.d + 100 * d2.d + 1000 * d3.d + 10000 * d4.d + 100000 * d5.d"
_COLUMNS = "class_name, event_json, lane, effective_date, created_date, search_key1, search_key2"
_LANES = (
    f"CASE d0.d WHEN 0 THEN '{SUSPECT}' WHEN 1 THEN '{PARKED}' WHEN 2 THEN '' WHEN 3 THEN "
    f"CASE d1.d WHEN 9 THEN '{NODE}' ELSE '' END ELSE '{OWN}' END"
)
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
SNAPSHOT = {
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
    values = (
        f"'Order', '{{}}', {_LANES}, CASE d1.d WHEN 9 THEN {future} ELSE {past} END, {past}, 1, "
        f"{number}"
    )
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
            "INSERT INTO bus_events_history (record_id, finished_date, processing_state, "
            f"{_COLUMNS}) SELECT -1 - ({number}), {past}, 'PROCESSED', {values} {source} "
            f"{present} AND {number} < {max(rows // 10, 2 * BATCH)}"
        )


def analyse(engine: Engine, tables: Iterable[str] = TABLES) -> None:
    """Let the database count the tables' rows, as autovacuum does."""
    words = {"postgresql": "VACUUM ANALYZE", "sqlite": "ANALYZE"}.get(
        engine.dialect.name, "ANALYZE TABLE"
    )
    with engine.connect() as connection:
        # VACUUM runs in no transaction; nor does the driver of SQLite begin one by itself.
        autocommit = connection.execution_options(isolation_level="AUTOCOMMIT")
        for table in tables:
            autocommit.exec_driver_sql(f"{words} {table}")

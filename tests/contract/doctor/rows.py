"""Rows for the doctor to find."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Engine,
    insert,
    literal,
    literal_column,
    select,
    text,
)

from sql.tables import entry_tables, queue_nodes

LONG_AGO = datetime.now(UTC) - timedelta(days=200)


def fill(
    engine: Engine,
    table: str,
    *,
    rows: int,
    lane: str = "",
    due: datetime = LONG_AGO,
    created: datetime = LONG_AGO,
) -> None:
    """Insert `rows` rows by one statement."""
    pair = entry_tables(table.removesuffix("_history"))
    history = table.endswith("_history")
    places = len(str(rows))
    digits = "(" + " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10)) + ")"
    number = " + ".join(f"{10**place} * d{place}.d" for place in range(places))
    target = pair.history if history else pair.main
    values: dict[str, Any] = {
        "class_name": "Order",
        "event_json": "{}",
        "lane": lane,
        "effective_date": due,
        "created_date": created,
    }
    if history:
        values |= {"finished_date": LONG_AGO, "processing_state": "PROCESSED"}
    columns: dict[str, ColumnElement[Any]] = {
        name: literal(value, target.c[name].type) for name, value in values.items()
    }
    if history:
        columns["record_id"] = literal_column(f"-{10 * rows} - ({number})")
    source = text(", ".join(f"{digits} d{place}" for place in range(places)))
    chosen = select(*columns.values()).select_from(source).where(text(f"{number} < {rows}"))
    with engine.begin() as connection:
        connection.execute(insert(target).from_select(list(columns), chosen))


def enter(
    engine: Engine,
    name: str,
    *,
    state: str = "LIVE",
    beat: datetime | None = None,
    started: datetime = LONG_AGO,
    tables: list[str] | None = None,
    subscribers: dict[str, list[str]] | None = None,
) -> None:
    """The row of a node; without `subscribers`, as the version before wrote it."""
    now = datetime.now(UTC)
    own = {} if subscribers is None else {"subscribers": subscribers}
    serves = [
        {"table": table, "mode": "POLLING", "queues": ["bus"], "types": [], **own}
        for table in tables or []
    ]
    with engine.begin() as connection:
        connection.execute(
            insert(queue_nodes).values(
                name=name,
                epoch=1,
                beat=1,
                state=state,
                hostname="host",
                host_identity="host",
                pid=os.getpid(),
                lease_seconds=15.0,
                started_date=started,
                beat_date=beat or now,
                serves=json.dumps(serves),
            )
        )

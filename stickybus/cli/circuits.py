"""Open circuits: handlers whose failed entries wait for a probe."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stickybus.cli.output import write_table

if TYPE_CHECKING:
    from queue_core.reading.open_circuits import OpenCircuit

COLUMNS = {
    "table": "TABLE",
    "queue_name": "QUEUE",
    "handler": "HANDLER",
    "since": "OPEN SINCE (UTC)",
    "failures": "FAILURES",
    "probe_id": "PROBE",
    "probe_date": "RUNS AT (UTC)",
}


def write_circuits(found: list[OpenCircuit]) -> None:
    """The open circuits as a table."""
    rows = [msgspec.structs.asdict(one) for one in found]
    write_table("Open circuits", COLUMNS, rows, empty="No circuit is open.")

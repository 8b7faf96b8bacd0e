"""`stickybus stats`: figures of queues over a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypedDict

import msgspec
import typer

from stickybus.cli.entry_options import AnyTable, Queue
from stickybus.cli.moments import moment, parsed_duration
from stickybus.cli.option_groups import grouped
from stickybus.cli.output import write_json, write_table
from stickybus.cli.target import Json, Url, inspected

app = typer.Typer(
    no_args_is_help=True, help="Count entries by state, retries, and how long handlers took."
)

QUEUE = {"table": "TABLE", "queue_name": "QUEUE"}
COUNTS = {
    "available": "AVAILABLE",
    "waiting": "WAITING",
    "in_processing": "IN_PROCESSING",
    "processed": "PROCESSED",
    "failed": "FAILED",
    "removed": "REMOVED",
    "reaped": "REAPED",
}
RETRIES = {"ok": "OK", "retries": "RETRIES", "percentage": "PERCENTAGE"}
TIMES = {
    "count": "COUNT",
    **{name: name.upper() for name in ("avg", "min", "max", "p50", "p90", "p95", "p99")},
}
NONE = "No entry within this age."

ALL = "all"
Age = Annotated[
    str,
    typer.Option(help="Only entries that ended within this time (2h, 30d), or 'all': no limit."),
]
Now = Annotated[
    str | None,
    typer.Option(
        "--now",
        help="The end of that time: an age (2h), or ISO 8601. Default: now.",
        show_default=False,
    ),
]


class _Wanted(TypedDict):
    """The filter of the counted entries, as the library takes it."""

    table: str | None
    queue_name: str | None
    age: timedelta | None
    now: datetime | None


def _wanted(
    *,
    queue: Queue = None,
    age: Age = "30d",
    now: Now = None,
    table: AnyTable = None,
) -> _Wanted:
    return {
        "table": table,
        "queue_name": queue,
        "age": None if age == ALL else parsed_duration(age),
        "now": None if now is None else moment(now, now=datetime.now(UTC)),
    }


@app.command()
@grouped(wanted=_wanted)
def queues(
    *,
    wanted: _Wanted,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Count the entries of each queue by state, live ones and ended ones.

    Examples:
      stickybus stats queues

      stickybus stats queues --age all --json
    """
    with inspected(url) as inspector:
        found = inspector.queue_stats(**wanted)
    _write("Entries by state", COUNTS, found, as_json=as_json)


@app.command()
@grouped(wanted=_wanted)
def retries(
    *,
    wanted: _Wanted,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Count the retries of each queue: PERCENTAGE is 100 x RETRIES / OK.

    OK entries ended PROCESSED without a failed run.

    Examples:
      stickybus stats retries --age 7d

      stickybus stats retries --queue bus --json
    """
    with inspected(url) as inspector:
        found = inspector.retry_stats(**wanted)
    _write("Retries", RETRIES, found, as_json=as_json)


@app.command()
@grouped(wanted=_wanted)
def times(
    *,
    wanted: _Wanted,
    unit: Annotated[str, typer.Option(help="Unit of the times, such as 1s, 1ms or 1m.")] = "1s",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show how long the last runs of each queue's entries took, with percentiles.

    Examples:
      stickybus stats times

      stickybus stats times --age 1d --unit 1ms --json
    """
    with inspected(url) as inspector:
        found = inspector.processing_time_stats(**wanted, unit=parsed_duration(unit))
    _write(f"Processing times in units of {unit}", TIMES, found, as_json=as_json)


def _write(
    title: str, columns: dict[str, str], found: Sequence[msgspec.Struct], *, as_json: bool
) -> None:
    if as_json:
        write_json(msgspec.to_builtins(found))
        return
    rows = []
    for one in found:
        row = msgspec.structs.asdict(one)
        # Three digits: times in seconds are mostly short.
        rows.append(
            {key: f"{row[key]:.3f}" if type(row[key]) is float else row[key] for key in row}
        )
    write_table(title, QUEUE | columns, rows, empty=NONE)

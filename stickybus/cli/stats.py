"""`stickybus stats`: entries by state, retries and processing times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
import typer

from stickybus.cli.entry_options import AnyTable, Queue
from stickybus.cli.moments import duration, moment
from stickybus.cli.output import write_json, write_table
from stickybus.cli.target import Json, Url, inspected

app = typer.Typer(
    no_args_is_help=True, help="Count entries by state, retries, and how long handlers took."
)

QUEUE = {"table": "TABLE", "queue_name": "QUEUE"}
COUNTS = {
    "available": "AVAILABLE",
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
    str, typer.Option(help="Only what ended so long ago at most (2h, 30d), or 'all': no limit.")
]
Now = Annotated[
    str | None,
    typer.Option(
        "--now",
        help="The end of the age: so long ago (2h), or ISO 8601. Default: now.",
        show_default=False,
    ),
]


@app.command()
def queues(
    *,
    queue: Queue = None,
    age: Age = "30d",
    now: Now = None,
    table: AnyTable = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Count the entries of each queue by state, live ones and ended ones.

    Examples:
      stickybus stats queues

      stickybus stats queues --age all --json
    """
    with inspected(url) as inspector:
        found = inspector.queue_stats(
            table=table, queue_name=queue, age=_age(age), now=_moment(now)
        )
    _write("Entries by state", COUNTS, found, as_json=as_json)


@app.command()
def retries(
    *,
    queue: Queue = None,
    age: Age = "30d",
    now: Now = None,
    table: AnyTable = None,
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
        found = inspector.retry_stats(
            table=table, queue_name=queue, age=_age(age), now=_moment(now)
        )
    _write("Retries", RETRIES, found, as_json=as_json)


@app.command()
def times(
    *,
    queue: Queue = None,
    age: Age = "30d",
    unit: Annotated[str, typer.Option(help="Unit of the times, such as 1s, 1ms or 1m.")] = "1s",
    now: Now = None,
    table: AnyTable = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show how long the last runs of each queue's entries took, with percentiles.

    Examples:
      stickybus stats times

      stickybus stats times --age 1d --unit 1ms --json
    """
    with inspected(url) as inspector:
        found = inspector.processing_time_stats(
            table=table,
            queue_name=queue,
            age=_age(age),
            now=_moment(now),
            unit=duration(unit),
        )
    _write(f"Processing times in units of {unit}", TIMES, found, as_json=as_json)


def _age(text: str) -> timedelta | None:
    return None if text == ALL else duration(text)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else moment(text, now=datetime.now(UTC))


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

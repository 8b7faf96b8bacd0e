"""Limits of queues by hand: `limit`, `unlimit` and `limits` of `stickybus tasks`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import typer

from stickybus.cli.entry_options import LimitedBy
from stickybus.cli.option_groups import grouped
from stickybus.cli.output import say, write_json, write_table
from stickybus.cli.target import Json
from stickybus.cli.usage import UsageError
from stickybus.cli.work import Opening, Queue, opening, seconds
from work_queue.limit import QueueLimit

COLUMNS = {
    "queue": "QUEUE",
    "concurrency": "CONCURRENCY",
    "rate": "RATE",
    "burst": "BURST",
    "limited_by": "LIMITED BY",
    "since": "SINCE (UTC)",
}


@grouped(opened=opening)
def limit(
    *,
    queue: Queue,
    concurrency: Annotated[
        int | None,
        typer.Option(
            help="At most this number of its tasks are claimed at once.", show_default=False
        ),
    ] = None,
    rate: Annotated[
        int | None,
        typer.Option(
            help="At most this number are claimed in each time --per.", show_default=False
        ),
    ] = None,
    per: Annotated[str, typer.Option(help="The time of the rate: seconds, or 1m, 1h.")] = "1s",
    burst: Annotated[
        int, typer.Option(help="At most this number of --rate are claimed at once.")
    ] = 1,
    by: LimitedBy = None,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Let all claimants together claim no more of a queue than this.

    It replaces the queue's limit, and holds over restarts. Inserting goes on.

    Examples:
      stickybus tasks limit -q mail --concurrency 10

      stickybus tasks limit -q sms --rate 100 --per 1m --burst 10
    """
    if concurrency is None and rate is None:
        raise UsageError(
            "give --concurrency, --rate or both. To end a limit: stickybus tasks unlimit -q "
            f"{queue}"
        )
    with opened() as work:
        made = work.limit(
            queue, concurrency=concurrency, rate=rate, per=_time(per), burst=burst, by=by
        )
    if as_json:
        write_json(msgspec.to_builtins(made))
    else:
        say(f"{queue} is limited to {made.told}")


@grouped(opened=opening)
def unlimit(*, queue: Queue, as_json: Json = False, opened: Opening) -> None:
    """End the limit of a queue: its tasks can be claimed.

    Examples:
      stickybus tasks unlimit -q mail
    """
    with opened() as work:
        removed = work.unlimit(queue)
    if as_json:
        write_json({"unlimited": removed})
    else:
        end = "is limited no more" if removed else "was not limited"
        say(f"{queue} {end}")


@grouped(opened=opening)
def limits(*, as_json: Json = False, opened: Opening) -> None:
    """Show the limits of queues: their values, authors and dates.

    Examples:
      stickybus tasks limits
    """
    with opened() as work:
        found = work.limits()
    if as_json:
        write_json(msgspec.to_builtins(found))
    else:
        write_table("Limits", COLUMNS, [_row(one) for one in found], empty="No queue is limited.")


def _time(text: str) -> timedelta:
    try:
        return timedelta(seconds=seconds(text))
    except (OverflowError, ValueError) as error:
        raise UsageError(f"--per {text} is no time: {error}") from error


def _row(limit: QueueLimit) -> dict[str, Any]:
    row = asdict(limit)
    if limit.rate is None:
        row["burst"] = None
    else:
        row["rate"] = f"{limit.rate} in {limit.per}"
    return row

"""`stickybus post` and `stickybus schedule`: JSON lines into a bus or a notification queue.

A batch is one transaction, and a bad line leaves its whole batch unwritten: posting stops there,
says which line is bad and why, and from which line to go on. An error and Ctrl-C say that, too, and
which lines nobody knows of. So each line is posted once, however often one has to start again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from queue_core.errors import CommitUnknownError, InvalidPostError, PayloadError
from queue_core.model.keyed import Keep, KeepWord, Posted
from queue_core.model.lanes import ANY_NODE
from stickybus.cli import line_source
from stickybus.cli.lines import BadLineError, Fields, Line, batches
from stickybus.cli.moments import parsed_duration
from stickybus.cli.output import plural, remark, say, write_json
from stickybus.cli.post_options import (
    Conflict,
    Event,
    EventField,
    File,
    FromLine,
    Kept,
    Key,
    Key1,
    Key2,
    PayloadField,
    Urgency,
)
from stickybus.cli.target import Json, Url, engine_of
from stickybus.cli.usage import UsageError

if TYPE_CHECKING:
    from queue_core.engine import QueueEngine
    from queue_core.model.posting import Posting

BAD_DATA = 1


def post(
    file: File,
    *,
    event_field: EventField = None,
    event: Event = None,
    key1: Key1 = None,
    key2: Key2 = None,
    key: Key = None,
    keep: Kept = "living",
    on_conflict: Conflict = "return",
    payload_field: PayloadField = "payload",
    priority: Urgency = "normal",
    from_line: FromLine = 1,
    bus: Annotated[
        str | None, typer.Option(help="Name of the bus. Default: bus.", show_default=False)
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="Its main table. Default: bus_events.", show_default=False)
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Post the lines of a file as events.

    Posts batches of 500 lines, each in one transaction. A bad line stops it, with exit code 1:
    nothing of that line's batch is written, batches before it are.

    Examples:
      stickybus post events.jsonl --event-field event --key1 repository_id --key2 sender_id

      zcat events.jsonl.gz | stickybus post - --event InvoicePosted
    """
    _check_key(key, keep, on_conflict)
    fields = Fields(
        event=event,
        event_field=event_field,
        key1=key1,
        key2=key2,
        payload=payload_field,
        key=key,
        options={"keep": _kept(keep), "on_conflict": on_conflict, "priority": priority},
    )
    _check_event(event, event_field)
    from queue_core.model.config import BusConfig

    config = BusConfig.from_environment(name=bus, table=table)
    with engine_of(url, config) as engine:
        _run(engine, config.name, file, fields, from_line, as_json=as_json)


def schedule(
    file: File,
    *,
    queue: Annotated[str, typer.Option(help="The queue, as service:queue.", show_default=False)],
    at_field: Annotated[
        str | None,
        typer.Option(
            help="Field that holds the date, ISO 8601 with an offset.", show_default=False
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            help="Time from now for all lines, such as 90s, 5m, 2h or 30d.", show_default=False
        ),
    ] = None,
    event_field: EventField = None,
    event: Event = None,
    key1: Key1 = None,
    key2: Key2 = None,
    key: Key = None,
    keep: Kept = "living",
    on_conflict: Conflict = "return",
    payload_field: PayloadField = "payload",
    from_line: FromLine = 1,
    table: Annotated[
        str | None,
        typer.Option(help="The service's main table. Default: notifications.", show_default=False),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Schedule the lines of a file as notifications; see `post`.

    Examples:
      stickybus schedule due.jsonl --queue invoices:dunning --event-field kind --at-field due_date

      stickybus schedule - --queue invoices:dunning --event Reminder --delay 5m < reminders.jsonl
    """
    _check_event(event, event_field)
    _check_key(key, keep, on_conflict)
    if (at_field is None) == (delay is None):
        raise UsageError("give either --at-field or --delay")
    service_name, colon, queue_name = queue.partition(":")
    if not (service_name and colon and queue_name) or ":" in queue_name:
        raise UsageError(f"--queue {queue!r} is no queue's name; write service:queue")
    fields = Fields(
        event=event,
        event_field=event_field,
        key1=key1,
        key2=key2,
        payload=payload_field,
        at=at_field,
        delay=None if delay is None else parsed_duration(delay),
        key=key,
        options={"keep": _kept(keep), "on_conflict": on_conflict},
    )
    from queue_core.model.config import NotificationConfig

    with engine_of(url, NotificationConfig.from_environment(table=table)) as engine:
        _run(engine, queue, file, fields, from_line, as_json=as_json)


def _check_event(event: str | None, event_field: str | None) -> None:
    if (event is None) == (event_field is None):
        raise UsageError("give either --event-field or --event")


def _check_key(key: str | None, keep: str, on_conflict: str) -> None:
    if key is None and (keep, on_conflict) != ("living", "return"):
        raise UsageError("--keep and --on-conflict need --key")


def _kept(keep: str) -> Keep:
    return cast("KeepWord", keep) if keep in get_args(KeepWord) else parsed_duration(keep)


@dataclass
class _Report:
    posted: int = 0
    found: int = 0
    """Lines whose keys were taken."""
    first_id: int | None = None
    last_id: int | None = None
    bad_lines: list[dict[str, Any]] = field(default_factory=list)
    next_line: int = 1
    """The line to go on with."""
    last_line: int = 0
    """The last line of the batch that begins there, if it was begun."""
    at_commit: bool = False
    """Whether nobody knows if that batch was written."""
    complete: bool = False
    """Whether all lines are done."""


def _run(
    engine: QueueEngine,
    queue_name: str,
    file: str,
    fields: Fields,
    first_line: int,
    *,
    as_json: bool,
) -> None:
    report = _Report(next_line=first_line)
    try:
        with line_source.opened(file, quiet=as_json) as (lines, progress):
            for batch in batches(lines, first_line=first_line):
                report.next_line, report.last_line = batch[0].number, batch[-1].number
                if not _post(engine, queue_name, batch, fields, report):
                    break
                progress(report.posted)
        report.complete = not report.bad_lines
    except BaseException:  # Ctrl-C, too
        if report.posted or report.found or report.at_commit:
            _tell(report, queue_name, as_json=as_json)
        raise
    _tell(report, queue_name, as_json=as_json)
    if report.bad_lines:
        raise typer.Exit(BAD_DATA)


def _post(
    engine: QueueEngine, queue_name: str, batch: list[Line], fields: Fields, report: _Report
) -> bool:
    """Post a batch, or report its bad lines and return False: nothing of it is written then."""
    now = engine.store.now()
    postings = []
    for line in batch:
        try:
            posting = fields.posting(line, now=now)
            postings.append(posting)
        except BadLineError as error:
            report.bad_lines.append({"line": line.number, "reason": str(error)})
    if report.bad_lines:
        return False
    try:
        report.at_commit = True
        ids = engine.poster.post(queue_name, postings)
    except (InvalidPostError, PayloadError):
        report.at_commit = False
        # The faulty line is found out only now: checking each beforehand would encode all payloads
        # twice.
        for line, posting in zip(batch, postings, strict=True):
            if reason := _refusal(engine, queue_name, posting):
                report.bad_lines.append({"line": line.number, "reason": reason})
        if not report.bad_lines:
            raise
        return False
    except Exception as error:
        report.at_commit = _may_be_written(error)
        raise
    taken = sum(isinstance(one, Posted) and not one.created for one in ids)
    report.posted += len(ids) - taken
    report.found += taken
    report.first_id = ids[0] if report.first_id is None else report.first_id
    report.last_id = ids[-1]
    report.next_line, report.at_commit = batch[-1].number + 1, False
    return True


def _may_be_written(error: Exception) -> bool:
    """Whether a post that raised may have committed. Of what is no error, it always may."""
    from sql.database import AT_COMMIT, COMMITTED

    notes = getattr(error, "__notes__", ())
    return isinstance(error, CommitUnknownError) or AT_COMMIT in notes or COMMITTED in notes


def _refusal(engine: QueueEngine, queue_name: str, posting: Posting) -> str | None:
    try:
        engine.store.rows.rows(queue_name, [posting], creator="", lane=ANY_NODE, claimed=False)
    except (InvalidPostError, PayloadError) as error:
        return str(error)
    return None


def _tell(report: _Report, queue_name: str, *, as_json: bool) -> None:
    first, last = report.next_line, report.last_line
    if as_json:
        write_json(
            {
                "queue_name": queue_name,
                "posted": report.posted,
                "found": report.found,
                "first_id": report.first_id,
                "last_id": report.last_id,
                "bad_lines": report.bad_lines,
                "continue_from_line": None if report.complete else report.next_line,
                "unknown_lines": [first, last] if report.at_commit else None,
            }
        )
        return
    ids = f" (ids {report.first_id} to {report.last_id})" if report.posted else ""
    say(f"{plural(report.posted, 'entry')} posted to {queue_name}{ids}")
    if report.found:
        say(f"{plural(report.found, 'line')} had keys that were taken")
    if report.complete:
        return
    for bad in report.bad_lines:
        remark(f"line {bad['line']}: {bad['reason']}")
    if report.at_commit:
        told = f"Lines {first} to {last} may be posted, or not: nothing has answered. Look, then"
    elif report.bad_lines:
        told = (
            f"Nothing of lines {first} to {last} was posted. Correct "
            f"{plural(len(report.bad_lines), 'line')}, then"
        )
    else:
        told = f"Nothing from line {first} on was posted:"
    remark(f"{told} go on with --from-line {first}.")

"""Changes of single entries, each a command of `stickybus entries`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queue_core.errors import EntryNotChangeableError, EntryNotFoundError
from queue_core.model.states import State
from stickybus.cli.entry_options import (
    DEFAULT_TABLE,
    AllSubscribers,
    Key1,
    Key2,
    Queue,
    SomeIds,
    keys_of,
)
from stickybus.cli.exit_codes import BAD_DATA
from stickybus.cli.moments import parsed_duration
from stickybus.cli.output import plural, remark, say, write_json
from stickybus.cli.target import Json, TableName, Url, inspected, maintained
from stickybus.cli.usage import UsageError

if TYPE_CHECKING:
    from queue_core.maintenance import Maintenance, RetryOptions

Ids = Annotated[list[int], typer.Argument(metavar="ID...", help="Record ids.", show_default=False)]


def retry(
    record_ids: Ids,
    *,
    all_subscribers: AllSubscribers = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also entries that were tried again before.")
    ] = False,
    wait: Annotated[
        str | None,
        typer.Option(
            help="Wait up to this time (10s, 5m) for the end of each, and show it.",
            show_default=False,
        ),
    ] = None,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Run entries again that ended FAILED or REMOVED: each is posted anew, and its new id is told.

    Subscribers that had succeeded don't run. An entry that was tried again before is refused,
    unless its retry has failed, too. If one can't be tried again, the others are, and the exit code
    is 1. So it is if with --wait one has not succeeded. To retry all that match: stickybus failed
    retry.

    Examples:
      stickybus entries retry 4711

      stickybus entries retry 4711 --wait 30s

      stickybus entries retry 4711 4712 --table notifications
    """
    seconds = None if wait is None else parsed_duration(wait).total_seconds()
    with maintained(url, table) as maintenance, inspected(url) as inspector:

        def one(record_id: int) -> dict[str, Any]:
            options: RetryOptions = {"all_subscribers": all_subscribers, "force": force}
            try:
                if seconds is not None:
                    return _told(maintenance, record_id, seconds, options)
                return {"new_id": maintenance.retry(record_id, **options)}
            except EntryNotFoundError as error:
                live = inspector.entries(table=table, record_ids=[record_id])
                if not live:
                    raise
                raise EntryNotChangeableError(
                    f"{table}: entry {record_id} is {live[0].entry.processing_state.value}; only "
                    "FAILED and REMOVED ones can be tried again. Nothing was written."
                ) from error

        _each(
            record_ids,
            one,
            lambda done: (
                f"entry {done['record_id']} is tried again as {done['new_id']}"
                + (f", which is {done['state']}" if "state" in done else "")
            ),
            as_json=as_json,
        )


def _told(
    maintenance: Maintenance, record_id: int, seconds: float, options: RetryOptions
) -> dict[str, Any]:
    """Retry an entry and wait for its end."""
    outcome = maintenance.retry_and_wait(record_id, timeout_seconds=seconds, **options)
    told: dict[str, Any] = {"new_id": outcome.record_id, "state": outcome.state}
    if outcome.state is not State.PROCESSED:
        how = "" if outcome.ended else f" after {seconds:g} s, and goes on"
        reason = f"\n{outcome.last_error}" if outcome.last_error else ""
        runs = f" ({plural(outcome.error_count, 'failed run')})" if outcome.error_count else ""
        told["error"] = (
            f"entry {record_id} is tried again as {outcome.record_id}, which is "
            f"{outcome.state or 'no longer in history'}{runs}{how}{reason}"
        )
    return told


def discard(
    record_ids: Ids,
    *,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Discard dead letters: entries that ended FAILED, and that nobody is going to try again.

    They stay in history, and count as dead letters no more. All are discarded; if one can't be, the
    exit code is 1.

    Examples:
      stickybus entries discard 4711 4712
    """
    with maintained(url, table) as maintenance:
        _each(
            record_ids,
            lambda record_id: {"discarded": maintenance.discard(record_id)},
            lambda done: (
                f"entry {done['record_id']} is {'' if done['discarded'] else 'already '}discarded"
            ),
            as_json=as_json,
        )


def release(
    record_ids: Ids,
    *,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Release entries that wait for others: they run, without regard to those.

    `stickybus entries list --state WAITING` shows them, and `stickybus entries explain` for which
    each waits. All are released; if one can't be, the exit code is 1.

    Examples:
      stickybus entries release 4711 4712
    """
    with maintained(url, table) as maintenance:
        _each(
            record_ids,
            lambda record_id: {"released": maintenance.release(record_id)},
            lambda done: (
                f"entry {done['record_id']} "
                f"{'is released' if done['released'] else 'waits for no other'}"
            ),
            as_json=as_json,
        )


def remove(
    record_ids: SomeIds = None,
    *,
    key1: Key1 = None,
    key2: Key2 = None,
    queue: Queue = None,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Remove entries that have not started, by ids or by search keys.

    They go to history as REMOVED. By keys, entries that run are left.

    Examples:
      stickybus entries remove 4711 4712

      stickybus entries remove --table notifications --queue invoices:dunning --key1 4711
    """
    by_keys = key1 is not None or key2 is not None
    if by_keys == bool(record_ids):
        raise UsageError("give either record ids, or --key1 or --key2")
    with maintained(url, table, queue) as maintenance:
        if by_keys:
            from queue_core.storage.filter import Filter

            removed = maintenance.remove(None, Filter(**keys_of(key1, key2)))
            if as_json:
                write_json({"removed": removed})
            else:
                say(f"{plural(removed, 'entry')} removed")
            return
        _each(
            record_ids or [],
            lambda record_id: {"removed": maintenance.remove(record_id)},
            lambda done: f"entry {done['record_id']} removed",
            as_json=as_json,
        )


def _each(
    record_ids: list[int],
    one: Callable[[int], dict[str, Any]],
    sentence: Callable[[dict[str, Any]], str],
    *,
    as_json: bool,
) -> None:
    """Do `one` for each id, and show its result; one that can't be done makes the exit code 1."""
    told: list[dict[str, Any]] = []
    for record_id in record_ids:
        try:
            told.append({"record_id": record_id, **one(record_id)})
        except (EntryNotFoundError, EntryNotChangeableError) as error:
            told.append({"record_id": record_id, "error": str(error)})
    if as_json:
        write_json(told)
    else:
        for done in told:
            if "error" in done:
                remark(f"stickybus: {done['error']}")
            else:
                say(sentence(done))
    if any("error" in done for done in told):
        raise typer.Exit(BAD_DATA)

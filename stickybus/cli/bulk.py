"""Bulk changes at the command line: a preview first, then a bar, and the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
import typer

from stickybus.cli.exit_codes import BAD_DATA, INTERRUPTED
from stickybus.cli.output import plural, remark, say, write_json, write_table
from stickybus.cli.progress import bar, stoppable

if TYPE_CHECKING:
    from queue_core.reading.bulk import BulkResult, Stop
    from queue_core.reading.truncation import Progress

PREVIEW = {
    "record_id": "ID",
    "queue_name": "QUEUE",
    "class_name": "EVENT",
    "processing_state": "STATE",
    "effective_date": "DUE (UTC)",
    "search_key1": "KEY1",
    "search_key2": "KEY2",
    "error": "LAST ERROR",
}

Yes = Annotated[bool, typer.Option("--yes", help="Do it; else only show the matches.")]


class BulkCall(Protocol):
    """A bulk change whose filters are given."""

    def __call__(
        self, *, dry_run: bool, progress: Progress | None, stop: Stop | None
    ) -> BulkResult:
        """Make the change, or preview it."""
        ...


def change_all(call: BulkCall, done: str, *, yes: bool, as_json: bool) -> None:
    """Preview a change, or make it and tell how far it came; `done`: the participle."""
    with stoppable() as stop, bar(f"{done} so far", quiet=as_json or not yes) as progress:
        result = call(dry_run=not yes, progress=progress, stop=stop)
    if as_json:
        write_json(_facts(result, yes=yes))
    elif yes:
        _tell(result, done)
    else:
        _preview(result, done)
    if result.stopped:
        raise typer.Exit(INTERRUPTED)
    if result.errors:
        raise typer.Exit(BAD_DATA)


def _facts(result: BulkResult, *, yes: bool) -> dict[str, Any]:
    facts = msgspec.structs.asdict(result)
    facts["first"] = [entry.record_id for entry in result.first]
    facts["errors"] = msgspec.to_builtins(result.errors)
    return {"done": yes, **facts}


def _tell(result: BulkResult, done: str) -> None:
    line = f"{result.changed:,} of {plural(result.matched, 'entry')} {done}"
    if result.skipped:
        line += f"; {result.skipped:,} were changed or started by others meanwhile"
    say(line)
    for one in result.errors:
        remark(f"entry {one.record_id}: {one.error}")
    if result.stopped:
        remark("Stopped after a batch: run the command again to go on.")


def _preview(result: BulkResult, done: str) -> None:
    rows = [
        {
            **msgspec.structs.asdict(entry),
            "error": (entry.last_error or "").partition("\n")[0] or None,
        }
        for entry in result.first
    ]
    title = f"{plural(result.matched, 'entry')} would be {done}; the first:"
    write_table(title, PREVIEW, rows, empty="No entry matches.")
    if rows:
        say("Nothing was changed: this was a dry run. To do it, add --yes")

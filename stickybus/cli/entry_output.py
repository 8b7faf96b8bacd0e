"""Entries as tables for people and as JSON for programs.

Payloads are shown only when asked for: they may be nobody's business.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from stickybus.cli.output import plural, say, write_json, write_table

if TYPE_CHECKING:
    from queue_core.model.entry import Entry, Located


def facts_of(located: Located, *, payload: bool) -> dict[str, Any]:
    """An entry for JSON output; its payload as JSON if it is, else as text or Base64."""
    entry = located.entry
    facts = msgspec.structs.asdict(entry)
    text, data = facts.pop("event_json"), facts.pop("event_bytes")
    facts["headers"] = entry.captured
    facts["subscribers_done"] = msgspec.to_builtins(entry.progress)
    if payload:
        try:
            facts["payload"] = json.loads(text) if text is not None else data
        except ValueError:
            facts["payload"] = text
    if located.not_archived:
        facts["not_archived"] = list(located.not_archived)
    return facts


def write_entries(
    title: str,
    columns: dict[str, str],
    found: list[Located],
    *,
    payload: bool,
    as_json: bool,
    limit: int,
) -> None:
    """Entries as JSON or as a table, with a remark if there may be more."""
    if as_json:
        write_json([{"table": one.table, **facts_of(one, payload=payload)} for one in found])
        return
    shown = {**columns, "payload": "PAYLOAD"} if payload else columns
    rows = [
        {
            **msgspec.structs.asdict(one.entry),
            "table": one.table,
            "payload": _payload_text(one),
            "error": _error(one.entry),
        }
        for one in found
    ]
    write_table(title, shown, rows, empty="No entry matches.")
    if len(found) == limit:
        say(f"The first {limit:,}; show more with --limit.")


def _payload_text(located: Located) -> str | None:
    if "payload" in located.not_archived:
        return "not archived"
    entry = located.entry
    if entry.event_json is not None:
        return entry.event_json
    return None if entry.event_bytes is None else plural(len(entry.event_bytes), "byte")


def _error(entry: Entry) -> str | None:
    return (entry.last_error or "").partition("\n")[0] or None

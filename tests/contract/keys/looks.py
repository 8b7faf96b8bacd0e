"""Looks at entries that have keys."""

from __future__ import annotations

import msgspec

from queue_core.model.entry import Entry


def numbers(entries: list[Entry]) -> list[int]:
    return [int(msgspec.json.decode(entry.event_json or "")["number"]) for entry in entries]

"""Entries after a reaper."""

from __future__ import annotations

from collections.abc import Sequence

from stickybus import Entry, State
from tests.contract.cluster import Peer


def reaped(peer: Peer) -> list[Entry]:
    return peer.bus.history(states=[State.REAPED])


def processed(peer: Peer) -> list[Entry]:
    return peer.bus.history(states=[State.PROCESSED])


def live_orders(entries: Sequence[Entry]) -> list[str]:
    return sorted(entry.event_json or "" for entry in entries)

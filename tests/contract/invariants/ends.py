"""Entries that have ended."""

from __future__ import annotations

from stickybus import State
from tests.contract.cluster import Peer


def processed(peer: Peer) -> list[int]:
    """The orders that have ended PROCESSED, by chain."""
    ended = peer.bus.history(states=[State.PROCESSED])
    return sorted(entry.origin_id or entry.record_id for entry in ended)

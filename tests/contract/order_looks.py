"""Entries with order keys, and looks at their tables."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from tests.contract.cluster import Peer
from tests.contract.harness import Order


def post(peer: Peer, *numbers: int, key: str = "k", **options: Any) -> list[int]:
    return [peer.bus.post(Order(number), order_key=key, **options) for number in numbers]


def rows(peer: Peer) -> tuple[int, int]:
    """How many rows the two tables of order keys have."""
    with peer.store.database.begin() as connection:
        return (
            connection.execute(text("SELECT count(*) FROM queue_ordered")).scalar_one(),
            connection.execute(text("SELECT count(*) FROM queue_order_heads")).scalar_one(),
        )

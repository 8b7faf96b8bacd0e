"""Looks at groups of the tests."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import text

from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order
from tests.contract.waits.looks import failing as failing_node

FINISHED, SUCCEEDED, FAILED = 901, 902, 903
"""The numbers of the orders that callbacks are."""


def open_group(peer: Peer, **options: Any) -> int:
    """A group with all callbacks."""
    return peer.bus.open_group(
        on_finished=Order(FINISHED),
        on_succeeded=Order(SUCCEEDED),
        on_failed=Order(FAILED),
        **options,
    )


def callbacks(peer: Peer) -> list[int]:
    """The numbers of the callbacks that were posted, in their order."""
    entries = sorted([*peer.bus.find(), *peer.bus.history()], key=lambda one: one.record_id)
    numbers = [json.loads(one.event_json or "{}")["number"] for one in entries]
    return [number for number in numbers if number in {FINISHED, SUCCEEDED, FAILED}]


def counts(peer: Peer, group: int) -> tuple[int, int, int, int]:
    """Its total, and how many have succeeded, failed, and were cancelled."""
    status = peer.bus.group_status(group)
    return status.total, status.succeeded, status.failed, status.cancelled


def failing(cluster: Cluster, *numbers: int) -> Peer:
    """A node whose handler fails for some orders, for good."""
    peer, _ = failing_node(cluster, *numbers)
    return peer


def rows(peer: Peer) -> int:
    """How many rows the tables of groups have."""
    counted = text(
        "SELECT (SELECT count(*) FROM queue_groups) + (SELECT count(*) FROM queue_group_ends)"
    )
    with peer.store.database.begin() as connection:
        return int(connection.execute(counted).scalar_one())

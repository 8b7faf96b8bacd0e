"""`stickybus nodes`: the processes of the cluster and their leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stickybus.cli.output import write_json, write_table
from stickybus.cli.target import Json, Url, inspected

if TYPE_CHECKING:
    from queue_core.reading.nodes import NodeStatus

COLUMNS = {
    "name": "NODE",
    "state": "STATE",
    "lease": "LEASE",
    "hostname": "HOST",
    "pid": "PID",
    "epoch": "EPOCH",
    "started_date": "SINCE (UTC)",
    "queues": "SERVES",
}


def nodes(*, url: Url = None, as_json: Json = False) -> None:
    """Show the nodes: state, lease, and which queues each serves.

    A LIVE node that does not renew its lease in time is declared DEAD by another, which takes over
    its entries.

    Examples:
      stickybus nodes

      stickybus nodes --json
    """
    with inspected(url) as inspector:
        found = inspector.nodes()
    if as_json:
        write_json(msgspec.to_builtins(found))
    else:
        write_nodes(found)


def write_nodes(found: list[NodeStatus]) -> None:
    """The nodes as a table."""
    rows = [
        {
            **msgspec.structs.asdict(node),
            "lease": _lease(node),
            "queues": ", ".join(
                sorted({name for served in node.serves for name in served["queues"]})
            )
            or None,
            # Not a quantity: without separators.
            "pid": str(node.pid),
            "epoch": str(node.epoch),
        }
        for node in found
    ]
    write_table("Nodes", COLUMNS, rows, empty="No node has ever run here.")


def _lease(node: NodeStatus) -> str | None:
    left = node.lease_left_seconds
    if left is None:
        return None
    return f"{left:.1f} s of {node.lease_seconds:g} s" if left >= 0 else f"overdue by {-left:.1f} s"

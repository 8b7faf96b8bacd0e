"""The history that most tests read is one that the engine could have written."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from queue_core.reading.live_entries import Entries
from sql.tables import entry_tables
from tests import requirements as needs
from tests.contract.cluster import Cluster, cluster
from tests.contract.harness import Order, Recorder
from tests.pipeline.sample import sample_history

__all__ = ["cluster"]  # the fixture

HISTORY = entry_tables("bus_events").history
_COUNTS = (
    "processing_state",
    "error_count",
    "claim_count",
    "redispatch_count",
    "crash_count",
    "codec",
)


def kind(row: dict[str, Any]) -> dict[str, Any]:
    """What rows of one kind have in common: their counts, and which columns are NULL."""
    names = [column.name for column in HISTORY.columns]
    return {name: row[name] if name in _COUNTS else row[name] is None for name in names}


def handled(cluster: Cluster, failures: float) -> int:
    """The id of an order that a node has run, with so many failures."""
    (peer,) = [
        peer
        for peer in cluster.peers
        if peer.lifecycle.node is not None and peer.node.name == "node-a"
    ]
    peer.handler = Recorder(failures=failures)
    (record_id,) = peer.bus.post_many([Order(1)])
    peer.run()
    return record_id


@needs.any_database
def test_rows_of_each_kind_look_like_those_that_the_engine_writes(cluster: Cluster) -> None:
    living, dying = cluster.join("node-a"), cluster.join("node-b")
    posting = cluster.peer("web")
    kinds = {handled(cluster, 0): 1, handled(cluster, 2): 15, handled(cluster, 9): 17}
    (waiting,) = posting.bus.post_many([Order(2)])
    Entries(posting.store, None).remove(waiting)
    (running,) = dying.bus.post_many([Order(3)])
    living.handler = Recorder()
    cluster.vanish(dying)
    cluster.bury("node-b", living)
    living.run()

    with living.store.database.read() as connection:
        rows = {row.record_id: row._asdict() for row in connection.execute(select(HISTORY))}
    (heir,) = [row["record_id"] for row in rows.values() if row["origin_id"] == running]
    kinds |= {waiting: 20, running: 23, heir: 24}
    sample = {row["record_id"]: row for row in sample_history()}
    assert {known: kind(rows[found]) for found, known in kinds.items()} == {
        known: kind(sample[known]) for known in kinds.values()
    }

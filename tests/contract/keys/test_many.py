"""Many keys: they are read in pages, and the doctor finds those whose entries are nowhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from queue_core.reading import keys as reading
from queue_core.reading.keys import Keys
from sql.doctor.finding import Finding
from sql.tables import entry_tables, queue_keys
from stickybus import Posting, inspect
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, engine_of


def test_pages_go_on_from_queue_to_queue(
    make_bus: MakeBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE", 2)
    buses = [make_bus(name=name) for name in ("a", "b", "c")]
    for bus, count in zip(buses, (3, 2, 4), strict=True):
        bus.register_event(Order)
        bus.post_many([Posting(event=Order(n), key=f"k{n}") for n in range(count)])
    keys = Keys(engine_of(buses[0]).store)

    def listed(queue_name: str | None, limit: int | None) -> Sequence[str]:
        return [f"{one.queue_name}{one.key[1:]}" for one in keys.all_keys(queue_name, limit)]

    assert listed(None, None) == ["a0", "a1", "a2", "b0", "b1", "c0", "c1", "c2", "c3"]
    assert listed(None, 4) == ["a0", "a1", "a2", "b0"]
    assert listed("c", None) == ["c0", "c1", "c2", "c3"]


def test_the_doctor_finds_keys_whose_entries_are_nowhere(cluster: Cluster, engine: Engine) -> None:
    peer = cluster.join("a")
    ended = peer.bus.post(Order(1), key="it's done", keep="forever")
    peer.run()
    peer.bus.truncate_history()
    live = peer.bus.post(Order(2), key="live", keep="forever")
    peer.bus.post(Order(3), key="brief")
    assert int(ended)
    assert _lost(engine) == []

    with engine.begin() as connection:
        connection.execute(sa.delete(entry_tables("bus_events").main))
    [finding] = _lost(engine)
    assert "1 keys" in finding.what
    assert "'live' of 'bus'" in finding.what
    assert finding.cure == "stickybus keys release live --queue bus --table bus_events"

    with engine.begin() as connection:
        mine = queue_keys.c.record_id == int(live)
        connection.execute(sa.update(queue_keys).where(mine).values(ended_state="PROCESSED"))
    assert _lost(engine) == []


def _lost(engine: Engine) -> list[Finding]:
    with inspect(engine.url) as inspector:
        return [one for one in inspector.doctor() if one.check == "lost-keys"]

"""Nodes of one bus share its events: different subscribers of one type are noticed and logged."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from sqlalchemy import URL

from queue_core.cluster.node import Node
from queue_core.cluster.subscriber_sets import LONGEST_LIST
from sql.statements import nodes
from stickybus import BusConfig, Mode, PersistentBus
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import engine_of, eventually, lifecycle_of, node_of


@dataclass(frozen=True)
class Parcel:
    """Other than `Order`, it has no subtypes in other tests."""

    number: int


@dataclass(frozen=True)
class Crate:
    number: int


class Warnings(logging.Handler):
    """The facts of each warning about subscribers that differ, in order."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("subscribers_differ "):
            self.told.append(vars(record)["facts"])


def has_looked(node: Node, times: int) -> bool:
    return node.reaper.looks >= times


@pytest.fixture
def warnings() -> Iterator[Warnings]:
    warnings = Warnings()
    logging.getLogger("queue_core").addHandler(warnings)
    yield warnings
    logging.getLogger("queue_core").removeHandler(warnings)


Served = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def served(cluster: Cluster) -> Served:
    """What the row of a node says that it serves."""

    def served(name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(cluster.row(name).serves)
        return found

    return served


class Bare(Peer):
    """A peer whose orders are taken by subscribers of these names alone."""

    def __init__(self, bus: PersistentBus, *names: str) -> None:
        self.bus, self.lifecycle, self.store = bus, lifecycle_of(bus), engine_of(bus).store
        for name in names:
            bus.subscribe(Parcel, lambda _event: None, name=name)


def other(cluster: Cluster, name: str, *names: str, mode: Mode = Mode.STICKY_EVENTS) -> Peer:
    """A node with other subscribers."""
    config = BusConfig(handler_threads=4, node_name=name, mode=mode)
    peer = Bare(PersistentBus(cluster.url, config, clock=cluster.clock), *names)
    cluster.peers.append(peer)
    return peer.join()


def look(cluster: Cluster, *peers: Peer, times: int = 2) -> None:
    """Let each beat, and look at the others."""
    for _ in range(times):
        cluster.tick(3.0, *peers)


def test_a_node_that_joins_others_with_other_subscribers_warns_once_for_each_type(
    cluster: Cluster, warnings: Warnings
) -> None:
    first, twin = other(cluster, "a", "orders"), other(cluster, "b", "orders")
    look(cluster, first, twin)
    assert warnings.told == []

    joined = other(cluster, "c", "mail", "book")
    look(cluster, first, twin, joined, times=5)

    [told] = warnings.told
    assert told["note"]
    assert {key: value for key, value in told.items() if key != "note"} == {
        "node": "c",
        "table": "bus_events",
        "queue_name": "bus",
        "class_name": "Parcel",
        "here": "book, mail",
        "elsewhere": "orders (on a, b)",
    }


def test_started_nodes_warn_by_themselves(make_bus: MakeBus, warnings: Warnings) -> None:
    for name in ("shop", "billing"):
        bus = make_bus(node_name=name, reap_period_seconds=0.05)
        bus.subscribe(Parcel, lambda _event: None, name=name)
        bus.start()
        eventually(partial(has_looked, node_of(bus), 2), "a look")

    [told] = eventually(lambda: warnings.told, "a warning")
    assert (told["node"], told["here"], told["elsewhere"]) == (
        "billing",
        "billing",
        "shop (on shop)",
    )


def test_the_same_subscribers_in_another_order_are_no_difference(
    cluster: Cluster, warnings: Warnings
) -> None:
    look(cluster, other(cluster, "a", "mail", "book"), other(cluster, "b", "book", "mail"))

    assert warnings.told == []


def test_long_lists_of_subscribers_are_compared_by_a_digest(
    cluster: Cluster, warnings: Warnings, served: Served
) -> None:
    names = [f"subscriber-{number}" for number in range(LONGEST_LIST)]
    first, same = other(cluster, "a", *names), other(cluster, "b", *reversed(names))
    look(cluster, first, same)
    assert warnings.told == []
    assert len(cluster.row("a").serves) < LONGEST_LIST

    joined = other(cluster, "c", *names[1:], "another")
    look(cluster, first, same, joined)

    [told] = warnings.told
    assert told["here"].startswith(f"{LONGEST_LIST} subscribers, sha256 ")
    assert told["here"] == served("c")[0]["subscribers"]["Parcel"]
    assert told["elsewhere"] == f"{served('a')[0]['subscribers']['Parcel']} (on a, b)"


def test_a_subscriber_that_is_added_later_is_published_with_the_next_beat_and_compared(
    cluster: Cluster, warnings: Warnings, served: Served
) -> None:
    first, second = other(cluster, "a", "orders"), other(cluster, "b", "orders")
    look(cluster, first, second)

    second.bus.subscribe(Parcel, lambda _event: None, name="late")
    assert served("b")[0]["subscribers"] == {"Parcel": ["orders"]}
    second.beat()
    assert served("b")[0]["subscribers"] == {"Parcel": ["late", "orders"]}
    look(cluster, first, second)

    [told] = warnings.told
    assert (told["node"], told["here"], told["elsewhere"]) == (
        "b",
        "late, orders",
        "orders (on a)",
    )


def test_a_node_that_posts_what_it_does_not_subscribe_to_warns_in_a_sticky_mode_where_it_runs_it(
    cluster: Cluster, warnings: Warnings
) -> None:
    first, poster = other(cluster, "a", "orders"), other(cluster, "web")
    look(cluster, first, poster)
    assert warnings.told == []

    poster.bus.post(Parcel(1))
    look(cluster, first, poster)

    [told] = warnings.told
    assert (told["node"], told["here"], told["elsewhere"]) == ("web", "nobody", "orders (on a)")


def test_a_node_that_posts_what_it_does_not_subscribe_to_is_no_difference_where_others_run_it(
    cluster: Cluster, warnings: Warnings
) -> None:
    first, poster = (
        other(cluster, "a", "orders", mode=Mode.POLLING),
        other(cluster, "web", mode=Mode.POLLING),
    )
    poster.bus.post(Parcel(1))
    look(cluster, first, poster)

    assert warnings.told == []


@pytest.mark.parametrize(
    "row", [{"state": "DEAD"}, {"state": "GONE"}, {"state": "STOPPED"}, {"pid": 1}]
)
def test_a_node_that_is_dead_or_silent_or_has_stopped_does_not_count(
    cluster: Cluster, warnings: Warnings, row: dict[str, Any]
) -> None:
    other(cluster, "a", "orders")
    cluster.change_row("a", **row)
    cluster.clock.advance(seconds=16)

    look(cluster, other(cluster, "b", "mail"))

    assert warnings.told == []


OLD = {"table": "bus_events", "mode": "STICKY_EVENTS", "queues": ["bus"], "types": ["Parcel"]}
"""What a node of the version before says."""


HOSTILE: list[str] = [
    *("", "{", "null", "[1]", "[" * 5_000, "[{}]", '[{"queues":7}]'),
    *(
        json.dumps([{**OLD, **more}])
        for more in (
            {},
            {"subscribers": None},
            {"subscribers": 7},
            {"subscribers": ["Parcel"]},
            {"subscribers": {"Parcel": None}},
            {"subscribers": {"Parcel": 7}},
            {"subscribers": {"Parcel": [7]}},
            {"subscribers": {"Parcel": ["x"]}, "queues": None},
            {"subscribers": {"Parcel": ["x"]}, "queues": ["elsewhere"]},
            {"subscribers": {"Parcel": ["x"]}, "table": "elsewhere"},
            {"subscribers": {"Parcel": ["x"]}, "table": None},
            {"subscribers": {"parcel": ["x"], "": ["x"]}},
        )
    ),
]


def test_nodes_of_the_version_before_or_of_a_hand_stop_no_look_and_are_not_warned_of(
    cluster: Cluster, warnings: Warnings
) -> None:
    joined = other(cluster, "b", "mail")
    columns = {**cluster.row("b")._mapping}
    for place, serves in enumerate(HOSTILE):
        values = {**columns, "name": f"a{place}", "serves": serves}
        joined.store.database.write(partial(nodes.Nodes().enter, values=values))

    look(cluster, joined)

    assert warnings.told == []


def test_two_types_of_one_name_keep_no_beat_back(cluster: Cluster, served: Served) -> None:
    def variant(qualified: str) -> type[Crate]:
        return type("Variant", (Crate,), {"__qualname__": qualified})

    both = variant("First"), variant("Second")
    peer = other(cluster, "a", "orders")
    peer.bus.subscribe(Crate, print, name="crates")

    peer.beat()

    assert [known.__name__ for known in both] == ["Variant", "Variant"]
    assert served("a")[0]["subscribers"] == {"Crate": ["crates"], "Parcel": ["orders"]}


def test_a_queue_has_one_handler_whatever_its_name(
    make_service: MakeService, warnings: Warnings, database_url: URL
) -> None:
    def renamed(_event: Any) -> None: ...

    for name, handler in (("a", print), ("b", renamed)):
        service = make_service(node_name=name, reap_period_seconds=0.05)
        service.create_queue("shop", "bills", handler)
        service.start()
        node = node_of(service)
        eventually(partial(has_looked, node, node.reaper.looks + 2), "two looks")

    assert warnings.told == []

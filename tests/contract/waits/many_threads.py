"""Two nodes, and posts to them from four threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from stickybus import PersistentBus
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, eventually

THREADS = 4


def done_by_two(
    make_bus: MakeBus, work: Callable[[list[PersistentBus], int], None], *, entries: int
) -> tuple[list[PersistentBus], list[int]]:
    """The nodes, and the orders as they ended; each thread does `work` at its place."""
    buses = [make_bus(node_name=f"n{place}", poll_interval_seconds=0.05) for place in range(2)]
    done, lock = list[int](), threading.Lock()

    def handle(order: Order) -> None:
        with lock:
            done.append(order.number)

    for bus in buses:
        bus.subscribe(Order, handle, name="orders")
        bus.start()
    threads = [threading.Thread(target=work, args=(buses, place)) for place in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: len(done) >= entries, "all have run")
    assert sorted(done) == sorted(set(done))
    return buses, done

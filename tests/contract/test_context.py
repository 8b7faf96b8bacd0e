"""Context variables go with an entry, from its post to its handlers."""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest
from sqlalchemy import URL

from queue_core.model.keyed import OnConflict
from stickybus import (
    BusConfig,
    ConfigurationError,
    EntryContext,
    InMemoryBus,
    InvalidPostError,
    NotificationService,
    PersistentBus,
)
from stickybus.testing import drain
from tests.contract.harness import Order

REQUEST: ContextVar[str] = ContextVar("request")
TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


def in_context(work: Any, **values: str) -> Any:
    tokens = [
        (variable, variable.set(values[variable.name]))
        for variable in (REQUEST, TENANT)
        if variable.name in values
    ]
    try:
        return work()
    finally:
        for variable, token in tokens:
            variable.reset(token)


def bus_of(url: URL, *variables: Any) -> PersistentBus:
    return PersistentBus(url, BusConfig(poll_interval_seconds=0.05), context=variables)


def test_what_is_set_at_the_post_is_set_around_the_handler_and_nowhere_else(
    database_url: URL,
) -> None:
    bus, seen = bus_of(database_url, REQUEST, TENANT), list[tuple[str, str, dict[str, str]]]()

    @bus.subscribe(Order)
    def handle(order: Order, context: EntryContext) -> None:
        seen.append((REQUEST.get("unset"), TENANT.get(), context.headers))

    in_context(lambda: bus.post(Order(1), headers={"a": "b"}), request="r1", tenant="t1")
    bus.post(Order(2))
    in_context(lambda: bus.post_many([Order(3), Order(4)]), request="r2")
    drain(bus)
    bus.close()
    assert seen == [
        ("r1", "t1", {"a": "b"}),
        ("unset", "nobody", {}),
        ("r2", "nobody", {}),
        ("r2", "nobody", {}),
    ]
    assert (REQUEST.get("unset"), TENANT.get()) == ("unset", "nobody")


def test_a_coroutine_and_an_exactly_once_handler_have_it_too(database_url: URL) -> None:
    bus, seen = bus_of(database_url, REQUEST), list[str]()

    @bus.subscribe(Order)
    async def wait(order: Order) -> None:
        seen.append(REQUEST.get("unset"))

    @bus.subscribe(Order, exactly_once=True)
    def once(order: Order, context: Any) -> None:
        seen.append(REQUEST.get("unset"))

    in_context(lambda: bus.post(Order(1)), request="r1")
    drain(bus)
    bus.close()
    assert seen == ["r1", "r1"]


def test_it_survives_a_retry_and_a_node_without_the_variable_runs_the_entry(
    database_url: URL,
) -> None:
    first, seen = bus_of(database_url, REQUEST), list[str]()

    @first.subscribe(Order)
    def fail_once(order: Order) -> None:
        seen.append(REQUEST.get("unset"))
        if len(seen) == 1:
            raise RuntimeError

    in_context(lambda: first.post(Order(1)), request="r1")
    drain(first)
    in_context(lambda: first.post(Order(2)), request="r2")
    first.close()
    other = bus_of(database_url)
    other.subscribe(Order, lambda _order: seen.append(REQUEST.get("unset")))
    drain(other)
    other.close()
    assert seen == ["r1", "r1", "unset"]


@pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
def test_what_replaces_an_entry_brings_its_own(database_url: URL, on_conflict: OnConflict) -> None:
    bus, seen = bus_of(database_url, REQUEST, TENANT), list[tuple[int, str, str]]()

    @bus.subscribe(Order)
    def handle(order: Order) -> None:
        seen.append((order.number, REQUEST.get("unset"), TENANT.get()))

    first, again = partial(bus.post, key="a"), partial(bus.post, key="a", on_conflict=on_conflict)
    in_context(lambda: first(Order(1), delay=3_600), request="r1", tenant="t1")
    in_context(lambda: again(Order(2)), tenant="t2")
    drain(bus)
    bus.close()
    assert seen == [(2, "unset", "t2")]


def test_notifications_have_it_too(database_url: URL) -> None:
    service, seen = NotificationService(database_url, context=[REQUEST]), list[str]()
    queue = service.create_queue("shop", "mail", lambda _event: seen.append(REQUEST.get("unset")))
    in_context(lambda: queue.schedule({"a": 1}, delay=0), request="r1")
    drain(service)
    service.close()
    assert seen == ["r1"]


def test_the_bus_in_memory_has_it_too() -> None:
    seen = list[str]()
    with InMemoryBus(context=[REQUEST]) as bus:
        bus.subscribe(Order, lambda _order: seen.append(REQUEST.get("unset")))
        in_context(lambda: bus.post(Order(1)), request="r1")
        bus.wait_until_idle()
    assert seen == ["r1"]


def test_what_is_no_text_is_refused_and_nothing_is_written(database_url: URL) -> None:
    bus = bus_of(database_url, REQUEST)
    with pytest.raises(InvalidPostError, match="request is an int"):
        in_context(lambda: bus.post(Order(1)), request=7)  # type: ignore[arg-type]
    assert bus.find() == []
    bus.close()


@pytest.mark.parametrize("wrong", [7, ["request"], [REQUEST, ContextVar("request")]])
def test_what_is_no_set_of_variables_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="context"):
        InMemoryBus(context=wrong)

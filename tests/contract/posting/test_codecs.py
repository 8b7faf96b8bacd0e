"""Codecs for each type and queue, compression and encryption: from the post to the handler."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import URL

from stickybus import (
    CompressedCodec,
    ConfigurationError,
    EncryptedCodec,
    InMemoryBus,
    JsonCodec,
    ManualClock,
    NotificationService,
    PersistentBus,
    State,
)
from stickybus.testing import drain
from tests.contract.harness import engine_of

OLD, NEW = secrets.token_bytes(32), secrets.token_bytes(32)
SMALL = CompressedCodec(JsonCodec())


@dataclass(frozen=True)
class CardCharged:
    card: str


@dataclass(frozen=True)
class OrderPlaced:
    number: int


def secret(current: str, **keys: bytes) -> EncryptedCodec:
    return EncryptedCodec(SMALL, keys=keys, current=current)


@pytest.fixture
def closing(database_url: URL) -> Iterator[Callable[..., PersistentBus]]:
    """Makes buses on the test's database with these codecs."""
    with ExitStack() as made:

        def make(**codecs: object) -> PersistentBus:
            bus = PersistentBus(database_url, metrics_registry=CollectorRegistry(), **codecs)  # type: ignore[arg-type]
            made.callback(bus.close)
            return bus

        yield make


def test_an_encrypted_type_is_unreadable_in_the_table_and_arrives(
    closing: Callable[..., PersistentBus],
) -> None:
    bus, seen = closing(type_codecs={CardCharged: secret("a", a=OLD)}), list[object]()
    bus.subscribe(CardCharged, seen.append, name="cards")
    bus.subscribe(OrderPlaced, seen.append, name="orders")
    bus.post(CardCharged("4111"))
    bus.post(OrderPlaced(1))
    card, order = bus.find()
    assert (card.codec, card.event_json) == ("json+zlib+aes:a", None)
    assert b"4111" not in (card.event_bytes or b"")
    assert (order.codec, order.event_json) == ("json", '{"number":1}')
    drain(bus)
    assert seen == [CardCharged("4111"), OrderPlaced(1)]
    # History keeps the payload as it was written.
    assert [entry.event_bytes for entry in bus.history()] == [card.event_bytes, None]


def test_keys_are_rotated_while_entries_of_the_former_key_wait(
    closing: Callable[..., PersistentBus],
) -> None:
    before = closing(codec=secret("a", a=OLD))
    first = before.post(CardCharged("1"))
    after, seen = closing(codec=secret("b", a=OLD, b=NEW)), list[CardCharged]()
    after.subscribe(CardCharged, seen.append, name="cards")
    second = after.post(CardCharged("2"))
    assert [entry.codec for entry in after.find()] == ["json+zlib+aes:a", "json+zlib+aes:b"]
    assert [ran.entry.record_id for ran in drain(after)] == [first, second]
    assert seen == [CardCharged("1"), CardCharged("2")]


def test_an_entry_of_a_missing_key_ends_failed_and_is_run_by_hand_with_the_key(
    closing: Callable[..., PersistentBus],
) -> None:
    record_id = closing(codec=secret("a", a=OLD)).post(CardCharged("1"))
    without = closing(codec=secret("b", b=NEW))
    without.subscribe(CardCharged, lambda _: None, name="cards")
    (ran,) = drain(without)
    assert ran.state is State.FAILED
    assert "no codec 'json+zlib+aes:a' here" in (ran.last_error or "")
    with_key, seen = closing(codec=secret("b", b=NEW, a=OLD)), list[CardCharged]()
    with_key.subscribe(CardCharged, seen.append, name="cards")
    with_key.retry(record_id)
    drain(with_key)
    assert seen == [CardCharged("1")]


def test_a_payload_that_was_moved_to_another_type_is_not_run(
    closing: Callable[..., PersistentBus], database_url: URL
) -> None:
    bus, seen = closing(codec=secret("a", a=OLD)), list[object]()
    bus.subscribe(CardCharged, seen.append, name="cards")
    bus.subscribe("CardFreed", seen.append, name="freed")
    bus.post(CardCharged("1"))
    with engine_of(bus).database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE bus_events SET class_name = 'CardFreed'")
    (ran,) = drain(bus)
    assert ran.state is State.FAILED
    assert "belongs to an event of another name" in (ran.last_error or "")
    assert seen == []


def test_older_codecs_are_read(closing: Callable[..., PersistentBus]) -> None:
    closing(codec=SMALL).post({"a": 1}, event_name="Any")
    bus, seen = closing(read_codecs=[SMALL]), list[object]()
    bus.subscribe("Any", seen.append, name="any")
    bus.post({"a": 2}, event_name="Any")
    assert [entry.codec for entry in bus.find()] == ["json+zlib", "json"]
    drain(bus)
    assert seen == [{"a": 1}, {"a": 2}]


def test_a_queue_has_its_codec_for_schedules_changes_and_recurring_ones(database_url: URL) -> None:
    clock, seen = ManualClock(), list[object]()
    service = NotificationService(
        database_url,
        clock=clock,
        metrics_registry=CollectorRegistry(),
        type_codecs={CardCharged: secret("a", a=OLD)},
    )
    with ExitStack() as ending:
        ending.callback(service.close)
        small = service.create_queue("shop", "small", seen.append, codec=SMALL)

        @service.queue("shop:plain")
        def plain(event: object) -> None:
            seen.append(event)

        record_id = small.schedule({"a": 1}, delay=1)
        small.schedule(CardCharged("1"), event_name="card", delay=1)
        service.get_queue("shop:plain").schedule({"a": 2}, delay=1)
        assert [entry.codec for entry in small.find()] == ["json+zlib", "json+zlib+aes:a"]
        assert [entry.codec for entry in service.get_queue("shop:plain").find()] == ["json"]
        assert small.update(record_id, event={"a": 3}).codec == "json+zlib"
        small.recur("pulse", {"a": 4}, every=60)
        clock.advance(seconds=61)
        drain(service)
        assert sorted(map(str, seen)) == sorted(
            map(str, [{"a": 3}, CardCharged("1"), {"a": 2}, {"a": 4}])
        )
        codecs = {entry.codec for entry in small.history()}
        assert codecs == {"json+zlib", "json+zlib+aes:a"}
        with pytest.raises(ConfigurationError, match="codec"):
            service.create_queue("shop", "wrong", seen.append, codec="json")  # type: ignore[call-overload]


def test_the_in_memory_bus_has_the_same_codecs() -> None:
    seen = list[object]()
    bus = InMemoryBus(codec=SMALL, type_codecs={CardCharged: secret("a", a=OLD)})
    bus.subscribe(CardCharged, seen.append, name="cards")
    bus.subscribe(OrderPlaced, seen.append, name="orders")
    with bus:
        bus.post(CardCharged("1"))
        bus.post(OrderPlaced(1))
        bus.wait_until_idle()
    assert [entry.codec for entry in bus.history()] == ["json+zlib+aes:a", "json+zlib"]
    assert CardCharged("1") in seen

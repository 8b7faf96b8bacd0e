"""Texts that are no plain `str`: a subclass, as of numpy and Django, or a member of an Enum."""

from __future__ import annotations

import enum
from contextvars import ContextVar
from typing import Any

import pytest
from sqlalchemy import URL

from bus.persistent import PersistentBus
from stickybus import ImmediateRetries, Posting
from tests.contract.harness import Recorder, ended


class Plain(str):
    __slots__ = ()


class Word(str, enum.Enum):  # noqa: UP042 -- its `str` is another one than StrEnum's
    CREATED = "hold"


TEXTS = pytest.mark.parametrize("text", [Plain("hold"), Word.CREATED], ids=["subclass", "enum"])


@TEXTS
def test_all_texts_of_a_post_are_stored_as_they_are(bus: PersistentBus, text: Any) -> None:
    bus.post(
        {},
        event_name=text,
        search_key1=text,
        user_token=text,
        future_user_token=text,
        headers={text: text},
        order_key=text,
        order_failure=text,
        limit_key=text,
    )
    (entry,) = bus.find(search_key1="hold")
    assert (entry.class_name, entry.user_token, entry.future_user_token) == ("hold",) * 3
    headers = entry.headers or ""
    marks = ("hold", "!order", "!order_failure", "!limit_key", "!search_key1")
    assert all(f'"{name}":"hold"' in headers for name in marks)


@TEXTS
def test_a_key_is_the_same_by_any_of_them(bus: PersistentBus, text: str) -> None:
    record_id = bus.post({}, event_name="paid", key="hold")
    assert bus.post({}, event_name="paid", key=text) == record_id
    assert bus.post_many([Posting(event={}, event_name="paid", key=text)]) == [record_id]
    assert bus.key_status(text).record_id == record_id


@TEXTS
def test_names_of_subscribers_and_events_are_stored_as_they_are(
    bus: PersistentBus, text: str
) -> None:
    bus.subscribe(text, Recorder(failures=1), name=text, retry=ImmediateRetries(0))
    bus.subscribe(text, Recorder(), name="other")
    bus.start()
    bus.post({"n": 1}, event_name="hold")
    (entry,) = ended(bus)
    assert entry.progress == {"hold": False, "other": True}


@TEXTS
def test_a_context_variable_goes_with_an_entry(database_url: URL, text: str) -> None:
    variable, seen = ContextVar[str]("tenant"), list[str]()
    bus = PersistentBus(database_url, context=[variable])
    bus.subscribe("paid", lambda _event: seen.append(variable.get()), name="sees")
    with bus:
        token = variable.set(text)
        bus.post({}, event_name="paid")
        variable.reset(token)
        ended(bus)
    assert seen == ["hold"]


def test_an_iterator_tells_the_entries_to_wait_for(bus: PersistentBus) -> None:
    first = bus.post({}, event_name="paid")
    ids: Any = iter([first])
    waits = bus.post({}, event_name="paid", after=ids)
    assert {entry.record_id: entry.processing_state for entry in bus.find()}[waits] == "WAITING"

"""Failed entries are listed by what is known of them, and retried one by one."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from sqlalchemy import URL

from queue_core.errors import (
    ConfigurationError,
    EntryNotChangeableError,
    EntryNotFoundError,
    InvalidPostError,
)
from queue_core.model.retry_policies import ImmediateRetries, ScheduledRetries
from queue_core.model.states import State
from stickybus import inspect
from stickybus.testing import drain
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.failed.shop import FAR, Shop, retried
from tests.contract.harness import BOUND_SECONDS, engine_of

# -- list ----------------------------------------------------------------------------------------


def test_failed_entries_are_found_by_type_error_keys_and_time(shop: Shop) -> None:
    mails = shop.fail("Mail", 3, search_key1=1)
    between = engine_of(shop.bus).store.now()
    bills = shop.fail("Bill", 2, search_key2=2)

    def found(**filters: Any) -> list[int]:
        return [entry.record_id for entry in shop.bus.dead_letters(**filters)]

    assert found() == sorted(mails + bills, reverse=True)
    assert found(limit=1) == bills[-1:]
    assert sorted(found(event_name="Mail")) == mails
    assert sorted(found(error_type="TimeoutError")) == mails
    assert found(error_type="Timeout") == found(error_type="%Error") == []
    assert found(error_type="timeouterror") == found(error_type="TIMEOUTERROR") == []
    assert sorted(found(error_text="THE MAIL")) == mails
    assert sorted(found(error_text="50%_OF")) == mails
    assert found(error_text="50_%of") == found(error_text="5%of") == []
    assert found(error_text="order 1", event_name="Bill") == [bills[1]]
    assert sorted(found(search_key1=1)) == mails
    assert sorted(found(search_key2=2)) == bills
    assert sorted(found(finished_since=between)) == bills
    assert sorted(found(finished_before=between)) == mails
    assert found(record_ids=[mails[0], 10**9]) == mails[:1]
    [one] = shop.bus.dead_letters(record_ids=mails[:1])
    assert (one.last_error or "").startswith("TimeoutError: 50%_of the mail server, order 0\n")


def test_what_was_retried_or_discarded_is_listed_no_more(shop: Shop) -> None:
    first, second, third = shop.fail("Mail", 3)
    copy = shop.bus.retry(first)
    shop.bus.discard(second)
    assert shop.letters == [third]
    drain(shop.bus)
    assert shop.letters == [third, copy]


def test_history_and_the_inspector_filter_errors_too(shop: Shop, database_url: URL) -> None:
    mails = shop.fail("Mail", 2)
    shop.fail("Bill", 1)
    by_type = shop.bus.history(error_type="TimeoutError", error_text="order 1")
    assert [entry.record_id for entry in by_type] == mails[1:]
    with inspect(database_url) as inspector:
        letters = inspector.history(dead_letters=True, error_type="TimeoutError")
    assert [located.entry.record_id for located in letters] == mails[::-1]


def test_a_queue_lists_its_own(make_service: MakeService) -> None:
    service = make_service(retry=ImmediateRetries(0))

    def fail(_event: object) -> None:
        raise ValueError

    one, other = (service.create_queue("shop", name, fail) for name in ("one", "other"))
    for queue in (one, other):
        queue.schedule({}, delay=0)
    drain(service)

    assert [entry.queue_name for entry in one.dead_letters()] == ["shop:one"]
    assert len(service.dead_letters()) == 2
    assert one.retry_all().changed == 1
    assert (len(one.dead_letters()), len(other.dead_letters())) == (0, 1)
    assert service.discard_all().changed == 1


@pytest.mark.parametrize(
    "filters",
    [
        {"error_text": ""},
        {"error_text": "\0"},
        {"error_type": 1},
        {"event_name": ""},
        {"record_ids": ["a"]},
        {"search_key1": None},
    ],
)
def test_a_filter_that_nothing_can_match_is_refused(shop: Shop, filters: dict[str, Any]) -> None:
    [letter] = shop.fail("Mail", 1)
    for call in (shop.bus.dead_letters, shop.bus.retry_all, shop.bus.discard_all):
        with pytest.raises(InvalidPostError):
            call(**filters)
    assert shop.letters == [letter]


# -- retry one, and see --------------------------------------------------------------------------


def test_a_retry_shows_its_failure_and_then_its_success(shop: Shop) -> None:
    [failed] = shop.fail("Mail", 1)
    shop.bus.start()

    outcome = shop.bus.retry_and_wait(failed, timeout_seconds=BOUND_SECONDS)

    assert (outcome.state, outcome.ended, outcome.error_count) == (State.FAILED, True, 1)
    assert (outcome.last_error or "").startswith("TimeoutError: 50%_of the mail server")
    assert shop.letters == [outcome.record_id]
    shop.failing = False
    again = shop.bus.retry_and_wait(outcome.record_id, timeout_seconds=BOUND_SECONDS)
    assert (again.state, again.last_error, shop.letters) == (State.PROCESSED, None, [])


def test_another_process_sees_what_a_node_makes_of_its_retry(shop: Shop, make_bus: MakeBus) -> None:
    [failed] = shop.fail("Mail", 1)
    shop.bus.start()
    outcome = make_bus().retry_and_wait(failed, timeout_seconds=BOUND_SECONDS)
    assert outcome.state is State.FAILED
    assert "TimeoutError" in (outcome.last_error or "")


def test_a_retry_that_nobody_runs_in_time_says_where_it_stands_and_goes_on(shop: Shop) -> None:
    [failed] = shop.fail("Mail", 1)
    outcome = shop.bus.retry_and_wait(failed, timeout_seconds=0)
    assert (outcome.state, outcome.ended) == (State.AVAILABLE, False)
    assert retried(shop.bus) == [failed]
    with pytest.raises(EntryNotChangeableError):
        shop.bus.retry_and_wait(failed)
    with pytest.raises(EntryNotFoundError):
        shop.bus.retry_and_wait(10**9)
    with pytest.raises(ConfigurationError):
        shop.bus.retry_and_wait(failed, timeout_seconds="1")  # type: ignore[arg-type]


def test_the_wait_ends_with_the_first_failure_if_the_next_run_is_far(make_bus: MakeBus) -> None:
    bus = make_bus(retry=ImmediateRetries(0))
    shop = Shop(bus)
    [failed] = shop.fail("Mail", 1)
    other = make_bus(retry=ScheduledRetries((FAR,)))
    Shop(other)
    other.start()
    began = time.monotonic()
    outcome = other.retry_and_wait(failed, timeout_seconds=2 * BOUND_SECONDS)
    assert (outcome.state, outcome.error_count, outcome.ended) == (State.AVAILABLE, 1, False)
    assert time.monotonic() - began < BOUND_SECONDS


def test_the_awaitable_twin_waits_too(shop: Shop) -> None:
    [failed] = shop.fail("Mail", 1)
    shop.bus.start()
    outcome = asyncio.run(shop.bus.retry_and_wait_async(failed, timeout_seconds=BOUND_SECONDS))
    assert outcome.state is State.FAILED

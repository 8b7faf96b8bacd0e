"""Sessions of others are left alone, and those that a user may not end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from sqlalchemy import URL

from bus.persistent import PersistentBus
from tests import requirements as needs
from tests.conftest import NewDatabase
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, eventually, lifecycle_of
from tests.contract.sleepers.server import SLEEP, Server, running
from tests.contract.sleepers.sleeper import asleep_on, ring, sleeping

pytestmark = needs.wakes_idle


def test_nobody_elses_session_is_ended(
    database_url: URL, database_name: str, new_database: NewDatabase, server: Server
) -> None:
    """Neither another statement of the same user, nor a sleeper of another database or channel."""
    other = new_database("other", migrated=False)
    longer, alike, mixed = SLEEP.replace("(", "(1"), f"{SLEEP}_too", "SELECT SLEEP(31), 'mine'"
    with ExitStack() as stack:
        before = stack.enter_context(running(server, database_url, longer))
        far = stack.enter_context(asleep_on(other, database_name))
        named = stack.enter_context(running(server, database_url, alike))
        mine = stack.enter_context(asleep_on(database_url, database_name))
        after = stack.enter_context(running(server, database_url, mixed))

        ring(database_url)

        assert mine.hears()
        assert far.heard.empty()
        assert Server(other, database_name).sleepers()
        assert server.sleepers(longer) == {before}
        assert server.sleepers(alike) == {named}
        assert server.sleepers(mixed) == {after}


def test_a_database_whose_name_differs_in_case_alone_is_another(
    database_url: URL, database_name: str, server: Server
) -> None:
    upper = database_url.set(database=str(database_url.database).upper())
    server.run(f"CREATE DATABASE {upper.database}")
    try:
        with asleep_on(upper, database_name) as far, asleep_on(database_url, database_name) as mine:
            ring(database_url)
            assert mine.hears()
            assert far.heard.empty()
    finally:
        server.run(f"DROP DATABASE {upper.database}")


def test_a_user_needs_no_privilege_to_wake_its_own_sessions(user: Callable[..., URL]) -> None:
    url = user()
    with sleeping(url) as sleeper:
        sleeper.hears()
        ring(url)
        sleeper.hears()


def test_with_the_privileges_of_an_administrator_a_user_wakes_sessions_of_others(
    user: Callable[..., URL], database_url: URL, database_name: str
) -> None:
    ends = "CONNECTION ADMIN" if database_name == "mariadb" else "CONNECTION_ADMIN"
    with sleeping(user()) as sleeper:
        sleeper.hears()
        ring(user("PROCESS", ends))
        sleeper.hears()


@pytest.mark.parametrize("privileges", [(), ("PROCESS",)])
def test_a_user_who_may_not_end_the_sleep_of_another_leaves_its_entry_to_the_poll(  # noqa: PLR0917
    idle: PersistentBus,
    make_bus: MakeBus,
    user: Callable[..., URL],
    recorder: Recorder,
    server: Server,
    caplog: pytest.LogCaptureFixture,
    privileges: tuple[str, ...],
) -> None:
    [sleeper] = server.sleepers()
    poster = make_bus(database=user(*privileges))
    poster.post(Order(1))
    hints = lifecycle_of(poster).hints
    eventually(lambda: hints.notifier is not None and not hints.told, "the hint is sent")
    poster.close()
    assert server.sleepers() == {sleeper}
    lifecycle_of(idle).claimer.look()  # as a poll does
    recorder.wait(1)
    assert not caplog.records

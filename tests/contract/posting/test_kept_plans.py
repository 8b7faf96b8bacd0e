"""Plans that a server keeps for the statements of posts."""

from __future__ import annotations

import pytest
from sqlalchemy import URL, create_engine, text

from bus.persistent import PersistentBus
from sql.postgresql import libpq
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, database_of


@needs.keeps_plans
def test_events_of_many_shapes_have_only_so_many_plans_kept_for_them(
    bus: PersistentBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libpq, "MOST_PREPARED", 2)
    keys = [(None, None), (1, None), (None, 2), (1, 2), (None, None)] * 2
    for number, (key1, key2) in enumerate(keys):
        bus.post(Order(number), search_key1=key1, search_key2=key2)
    assert [(entry.search_key1, entry.search_key2) for entry in bus.find()] == keys
    assert plans_kept(bus) == 2


def plans_kept(bus: PersistentBus) -> int:
    """How many statements the server keeps for the connection that posts."""
    count = text("SELECT COUNT(*) FROM pg_prepared_statements WHERE name LIKE 'stickybus%'")
    return int(
        database_of(bus).insert_autocommit(
            lambda connection: connection.execute(count).scalar_one()
        )
    )


@needs.keeps_plans
def test_no_plan_is_kept_on_connections_of_an_application_that_wants_none(
    database_url: URL, make_bus: MakeBus
) -> None:
    """Behind a pooler each statement may run in another session."""
    engine = create_engine(database_url, connect_args={"prepare_threshold": None})
    bus = make_bus(database=engine)
    for number in range(3):
        bus.post(Order(number))
    assert plans_kept(bus) == 0
    assert len(bus.find()) == 3


@needs.keeps_plans
def test_posts_do_not_notice_that_a_session_has_lost_its_plans(bus: PersistentBus) -> None:
    for number in range(2):
        bus.post(Order(number))
    assert plans_kept(bus) == 1
    forget = text("DEALLOCATE ALL")
    database_of(bus).insert_autocommit(lambda connection: connection.execute(forget))
    for number in range(2, 4):
        bus.post(Order(number))
    assert [entry.event_json for entry in bus.find()] == [
        f'{{"number":{number}}}' for number in range(4)
    ]
    assert plans_kept(bus) == 1

"""What a bus does about its tables when it is made."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, inspect

from sql.schema import Fit
from stickybus import (
    BusConfig,
    NotificationConfig,
    NotificationService,
    PersistentBus,
    SchemaMissingError,
    SchemaTooOldError,
)
from tests import requirements as needs
from tests.contract.schema.tables import make_schema_of, report


def test_missing_tables_are_made_and_an_old_schema_is_upgraded(empty: Engine) -> None:
    make_schema_of(empty, "0010")
    config = BusConfig(table="orders", auto_migrate=True)

    with PersistentBus(empty.url, config) as bus:
        bus.post({}, event_name="Order")
    NotificationService(empty.url, NotificationConfig(auto_migrate=True)).close()

    assert report(empty, "orders", "notifications").fit is Fit.CURRENT


def test_without_it_the_command_is_named(empty: Engine) -> None:
    config = BusConfig(auto_migrate=False)

    with pytest.raises(SchemaMissingError, match="Run: stickybus schema create"):
        PersistentBus(empty.url, config)
    assert inspect(empty).get_table_names() == []

    make_schema_of(empty, "0010")
    with pytest.raises(SchemaTooOldError, match="Run: stickybus schema upgrade"):
        PersistentBus(empty.url, config)
    assert report(empty).found == "0010"


@needs.makes_tables
def test_where_nobody_administers_missing_tables_are_made_unasked(
    empty: Engine,
) -> None:
    PersistentBus(empty.url).close()
    assert report(empty, "bus_events").fit is Fit.CURRENT


@needs.makes_tables
def test_an_old_schema_is_upgraded_by_who_asks_for_it_alone(empty: Engine) -> None:
    make_schema_of(empty, "0010")

    with pytest.raises(SchemaTooOldError):
        PersistentBus(empty.url)

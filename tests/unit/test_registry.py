"""What is registered for each kind of database, and the errors of URLs that lead to none."""

from __future__ import annotations

import sys

import pytest
from sqlalchemy import make_url

from queue_core.errors import ConfigurationError
from sql.drivers.raw import RawDriver
from sql.errors import UnsupportedDatabaseError
from sql.registry import BACKENDS, own_url, raw_driver_of, raw_drivers
from stickybus import PersistentBus


@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [
        ("postgresql://localhost/shop", "psycopg", "postgresql"),
        ("mysql+aiomysql://localhost/shop", "pymysql", "mysql"),
        ("mariadb://localhost/shop", "pymysql", "mysql"),
    ],
)
def test_a_missing_driver_is_named_with_the_extra_that_has_it(
    monkeypatch: pytest.MonkeyPatch, url: str, driver: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(
        ConfigurationError, match=rf"{driver} is not installed.*'stickybus\[{extra}\]'"
    ):
        PersistentBus(url)


def test_a_database_that_is_not_registered_is_refused_with_those_that_are() -> None:
    with pytest.raises(
        UnsupportedDatabaseError,
        match=r"oracle is not supported.*mariadb, mysql, postgresql, sqlite",
    ):
        own_url(make_url("oracle://localhost/shop"))


def test_a_database_that_is_misspelt_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UnsupportedDatabaseError, match=r"Did you mean postgresql\?"):
        own_url(make_url("postgres://localhost/shop"))


@pytest.mark.parametrize("url", ["shop.db", "postgresql://user:sword:fish@host:port/shop"])
def test_what_is_no_url_is_refused_with_an_example_and_without_a_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="One looks like sqlite:///") as refused:
        PersistentBus(url)
    assert "fish" not in str(refused.value)


@pytest.mark.parametrize("name", BACKENDS)
def test_each_database_is_served_by_classes_of_its_own_room(name: str) -> None:
    backend = BACKENDS[name]
    assert backend.dialect.name == name
    for kind in (backend.dialect, backend.doctor, *backend.dialect.own_statements):
        assert kind.__module__.split(".")[1] == name


def test_connections_of_any_other_database_are_asked_as_sqlalchemy_asks() -> None:
    assert type(raw_driver_of("oracle")) is RawDriver
    assert raw_drivers() == {"sqlite3", "psycopg", "pymysql"}

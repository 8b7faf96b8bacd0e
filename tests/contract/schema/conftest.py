"""A database without tables, and one with all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import (
    URL,
    Engine,
)

from tests.contract.schema.tables import reflecting


@pytest.fixture
def empty(empty_database_url: URL) -> Iterator[Engine]:
    """An engine on a database without tables."""
    engine = reflecting(empty_database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(database_url: URL) -> Iterator[Engine]:
    """An engine on a database with the schema."""
    engine = reflecting(database_url)
    yield engine
    engine.dispose()

"""Fixtures of the command line's tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from sqlalchemy import URL

from bus.persistent import PersistentBus
from queue_core.model.config import BusConfig
from queue_core.model.retry_policies import ImmediateRetries
from tests.acceptance.cli.running import Cli, MakeCli


@pytest.fixture
def make_cli(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeCli]:
    root = logging.getLogger()
    level = root.level
    yield lambda url: Cli(url, capsys, monkeypatch)
    root.setLevel(level)


@pytest.fixture
def cli(make_cli: MakeCli, database_url: URL) -> Cli:
    return make_cli(database_url)


@pytest.fixture
def bus(database_url: URL) -> Iterator[PersistentBus]:
    bus = PersistentBus(database_url, BusConfig(retry=ImmediateRetries(0)))
    yield bus
    bus.close()

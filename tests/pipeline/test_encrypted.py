"""Payloads that a codec has encrypted stay so in an archive, and are proved without a key."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import (
    archive_history,
    find_archived,
    replay_archive,
    verify_archive,
    verify_content,
)
from queue_core.model.codec import Codec
from queue_core.model.states import State
from stickybus import EncryptedCodec, JsonCodec, PersistentBus
from stickybus.testing import drain
from tests import requirements as needs
from tests.pipeline.arrow_archive import all_texts
from tests.pipeline.sample import ended, write_rows

OLD, NEW = secrets.token_bytes(32), secrets.token_bytes(32)
WROTE = EncryptedCodec(JsonCodec(), keys={"2026-10": OLD}, current="2026-10")
ROTATED = EncryptedCodec(JsonCodec(), keys={"2026-10": OLD, "2026-11": NEW}, current="2026-11")
DESTROYED = EncryptedCodec(JsonCodec(), keys={"2026-11": NEW}, current="2026-11")
SECRET = {"mail": "ada@example.org"}


@pytest.fixture
def target(spark: SparkSession, database_url: URL, tmp_path: Path) -> str:
    """An archive of an entry whose payload was encrypted with the old key."""
    stored: dict[str, Any] = {
        "event_json": None,
        "event_bytes": WROTE.encode(SECRET, "Order"),
        "codec": WROTE.name,
    }
    write_rows(database_url, [ended(1, **stored)])
    target = str(tmp_path / "archive")
    archive_history(spark, database_url, target)
    return target


def replayed(spark: SparkSession, url: URL, target: str, codec: Codec) -> tuple[list[object], str]:
    """What a bus with a codec gets of the entry when it is posted again, and how that ends."""
    got = list[object]()
    with closing(PersistentBus(url, codec=codec)) as bus:
        bus.subscribe("Order", got.append, name="all")
        assert replay_archive(spark, url, target, where="record_id = 1", post=True).posted == 1
        drain(bus)
        [entry] = bus.history(states=[State.PROCESSED, State.FAILED])
    return got, entry.last_error or ""


@needs.any_database
def test_the_archive_is_proved_without_a_key_and_names_it(
    spark: SparkSession, database_url: URL, target: str
) -> None:
    assert "ada" not in all_texts(target)
    assert verify_archive(target, database=database_url).damaged == []
    assert verify_content(spark, target, database=database_url).damaged == []
    [located] = find_archived(target, table="bus_events")
    assert (located.entry.codec, located.entry.event_json) == ("json+aes:2026-10", None)


@needs.any_database
def test_an_old_key_reads_it_after_new_ones(
    spark: SparkSession, database_url: URL, target: str
) -> None:
    assert replayed(spark, database_url, target, ROTATED) == ([SECRET], "")


@needs.any_database
def test_without_its_key_it_is_never_read(
    spark: SparkSession, database_url: URL, target: str
) -> None:
    got, error = replayed(spark, database_url, target, DESTROYED)
    assert got == []
    assert "json+aes:2026-10" in error

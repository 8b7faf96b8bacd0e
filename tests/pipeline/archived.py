"""The sample's history in an archive, and runs that are stopped in the middle."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from sqlalchemy import URL, text
from sqlalchemy import Row as LogRow

from history_pipeline import read_archive, read_history
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import Manifest
from history_pipeline.upkeep.archiving import Archiver
from sql.database import Database
from sql.statements.archives import Archives
from tests.pipeline.sample import sample_history

SAMPLE = len(sample_history())


def rows_of(spark: SparkSession, url: URL) -> list[Row]:
    return sorted(read_history(spark, url).collect())


def archived(spark: SparkSession, target: str) -> list[Row]:
    return sorted(read_archive(spark, target).collect())


def manifests(spark: SparkSession, target: str | Path, table: str = "bus_events") -> list[Manifest]:
    return Archive(spark, str(target), table).manifests()


def after(step: str, then: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call `then` once, when the archive's next `step` is done."""
    former: Callable[..., Any] = getattr(Archiver, step)
    pending = [then]

    def changed(self: Archiver, *arguments: Any) -> Any:
        done = former(self, *arguments)
        if pending:
            pending.pop()()
        return done

    monkeypatch.setattr(Archiver, step, changed)


class StoppedError(Exception):
    """Ends a run in the middle."""


def stop() -> None:
    raise StoppedError


def execute(url: URL, statement: str, **values: Any) -> None:
    database = Database(url)
    database.write(lambda connection: connection.execute(text(statement), values))
    database.close()


def no_lock(*_of_what: object) -> AbstractContextManager[None]:
    """In place of `files_lock`."""
    return nullcontext()


def log(url: URL) -> list[LogRow[Any]]:
    """The rows of the log, by number."""
    database = Database(url)
    rows = database.fetch(lambda connection: Archives().entered(connection, "bus_events"))
    database.close()
    return sorted(rows, key=lambda row: row.manifest_number or 0)

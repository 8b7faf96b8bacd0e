"""What `stickybus doctor` finds in an SQLite file alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import (
    URL,
    Engine,
)

from sql.sqlite import doctor as sqlite
from stickybus.cli import main
from tests import requirements as needs
from tests.contract.doctor.answers import Doctor
from tests.contract.doctor.rows import fill


@needs.sqlite
def test_a_file_in_another_journal_mode_is_found(doctor: Doctor, database_url: URL) -> None:
    with closing(sqlite3.connect(str(database_url.database))) as file:
        file.execute("PRAGMA journal_mode = DELETE")

    assert "journal mode is delete" in doctor().one("journal-mode")["what"]


@pytest.mark.slow
@needs.sqlite
def test_a_file_that_can_not_be_opened_is_looked_at_from_outside(
    database_url: URL, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(str(database_url.database), isolation_level=None)) as file:
        file.execute("PRAGMA journal_mode = DELETE")
        file.execute("BEGIN")
        file.execute(
            "SELECT count(*) FROM bus_events"
        ).fetchall()  # holds a lock that a switch to WAL waits for

        code = main(["doctor", "--url", database_url.render_as_string()])

    written = capsys.readouterr()
    assert code == 3
    assert "its journal mode is delete" in written.out
    assert "can't be reached: database is locked" in written.err


@needs.sqlite
def test_a_write_ahead_log_that_a_reader_keeps_from_being_emptied_is_found(
    doctor: Doctor, database_url: URL, run: Callable[..., None]
) -> None:
    with closing(sqlite3.connect(str(database_url.database), isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM bus_events").fetchall()
        run(
            "PRAGMA synchronous = OFF",
            "CREATE TABLE blobs (content BLOB)",
            "INSERT INTO blobs SELECT zeroblob(1000000) FROM (WITH RECURSIVE n(i) AS (SELECT 1 "
            "UNION ALL SELECT i + 1 FROM n WHERE i < 140) SELECT i FROM n)",
        )

        assert doctor().one("wal-size")["severity"] == "slow"


@needs.sqlite
def test_a_file_on_a_network_file_system_is_found(
    doctor: Doctor, database_url: URL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(str(database_url.database)).resolve().parent
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/sda1 / ext4 rw 0 0\nfiler:/share {folder} nfs4 rw,hard 0 0\n", encoding="utf-8"
    )
    monkeypatch.setattr(sqlite, "MOUNTS", mounts)

    told = doctor()

    assert told.code == 1
    assert told.one("network-file-system")["what"].startswith("the file lies on nfs4")


@needs.sqlite
def test_a_disk_that_is_nearly_full_is_found(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "FREE_BYTES", 2**62)

    told = doctor()

    assert told.code == 1
    assert told.one("free-disk")["severity"] == "danger"


@needs.sqlite
def test_a_damaged_file_is_found_when_it_is_asked_for(
    doctor: Doctor, database_url: URL, engine: Engine
) -> None:
    fill(engine, "bus_events_history", rows=2_000)
    path = Path(str(database_url.database))
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = path.stat().st_size
    with path.open("r+b") as damaged:
        damaged.seek(size // 2)
        damaged.write(b"\xff" * 8192)

    told = doctor("--integrity")

    assert told.code == 1
    assert told.one("integrity")["severity"] == "danger"

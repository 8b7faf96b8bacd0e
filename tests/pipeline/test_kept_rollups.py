"""Roll-ups that are kept beside an archive are used only as they were written."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqlalchemy import URL

from history_pipeline import erase_archived, rolled_audit
from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.manifest import DataFile, live_files
from history_pipeline.errors import ArchiveDamagedError
from history_pipeline.rollups.kept_rollups import KeptRollups
from history_pipeline.rollups.rollup import ROLLED_ENTRIES
from history_pipeline.rollups.tallies import Rollup
from tests.pipeline.arrow_archive import write_archive
from tests.pipeline.random_history import random_history
from tests.pipeline.sample import START, ended

MAIN = "bus_events"
LATER = START + timedelta(days=1)
FLIPS = 100


@pytest.fixture
def storage(database_url: URL, tmp_path: Path) -> ArrowStorage:
    """That of an archive of some days."""
    target = str(tmp_path / "archive")
    write_archive(database_url, target, [random_history(1, 60)])
    return ArrowStorage(f"{target}/{MAIN}")


@pytest.fixture
def of_day(storage: ArrowStorage) -> list[DataFile]:
    """The files of one day."""
    files = live_files(ArchiveLog(storage, MAIN).open())
    return [file for file in files if file.event_date == files[0].event_date]


def rolled(storage: ArrowStorage, of_day: list[DataFile]) -> Rollup:
    return KeptRollups(storage, MAIN, ROLLED_ENTRIES).of_day(of_day[0].event_date, of_day)


def rows(rollup: Rollup) -> dict[str, list[str]]:
    return {name: sorted(map(str, table.to_pylist())) for name, table in rollup.items()}


def test_a_roll_up_of_which_a_bit_flips_is_made_anew(
    storage: ArrowStorage, of_day: list[DataFile]
) -> None:
    """Parquet alone would tell a wrong figure as readily as the right one."""
    right = rows(rolled(storage, of_day))
    [path] = Path(storage.root, "rollups").iterdir()
    chance = random.Random(27)  # noqa: S311 -- the same flips each time
    for _ in range(FLIPS):
        changed = bytearray(path.read_bytes())
        place, bit = chance.randrange(len(changed)), chance.randrange(8)
        changed[place] ^= 1 << bit
        path.write_bytes(changed)
        assert rows(rolled(storage, of_day)) == right, (place, bit)
        assert path.read_bytes() != changed, (place, bit)


def test_what_is_no_roll_up_is_made_anew(storage: ArrowStorage, of_day: list[DataFile]) -> None:
    right = rows(rolled(storage, of_day))
    [path] = Path(storage.root, "rollups").iterdir()
    kept = path.read_bytes()
    for content in (b"", kept[:9], kept[:-1], kept + b"\0"):
        path.write_bytes(content)
        assert rows(rolled(storage, of_day)) == right
        assert path.read_bytes() != content


def test_no_roll_up_is_made_of_a_file_that_was_changed(
    storage: ArrowStorage, of_day: list[DataFile]
) -> None:
    """Parquet reads such a file, and the roll-up would stay when the right one is brought back."""
    [first, *_others] = of_day
    path = Path(storage.root, first.path)
    right = path.read_bytes()
    pq.write_table(pq.ParquetFile(path).read().slice(1), path)
    with pytest.raises(ArchiveDamagedError, match=path.name):
        rolled(storage, of_day)
    assert storage.names("rollups") == []
    path.write_bytes(right)
    rolled(storage, of_day)
    assert len(storage.names("rollups")) == 1


def test_an_erasure_removes_the_roll_up_that_has_an_errors_text(
    database_url: URL, tmp_path: Path
) -> None:
    """What stands before the first colon of an error counts as its type, whatever it is."""
    target = str(tmp_path / "archive")
    of_customer = ended(1, "FAILED", last_error="ada is unknown")
    write_archive(database_url, target, [[of_customer, ended(2, finished_date=LATER)]])
    storage = ArrowStorage(f"{target}/{MAIN}")
    [text] = rolled_audit(archive=target).rows("failures")
    assert text["error_type"] == "ada is unknown"
    old, other = storage.names("rollups")

    erase_archived(target, database=database_url, record_ids=[1])

    assert storage.names("rollups") == [other]
    [text] = rolled_audit(archive=target).rows("failures")
    assert text["error_type"] is None
    assert old not in storage.names("rollups")


def test_a_roll_up_is_read_without_the_files_that_it_was_made_of(
    storage: ArrowStorage, of_day: list[DataFile]
) -> None:
    right = rows(rolled(storage, of_day))
    for file in of_day:
        storage.remove(file.path)
    assert rows(rolled(storage, of_day)) == right

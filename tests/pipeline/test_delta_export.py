"""An archive as a Delta table: it has the archive's rows, whatever happens to the archive."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from sqlalchemy import URL

from bus.persistent import PersistentBus
from history_pipeline import Exported, erase_archived, export_delta
from history_pipeline.errors import (
    ArchiveConflictError,
    ArchiveDamagedError,
    ArchiveNotFoundError,
    ArchiveTargetError,
)
from history_pipeline.rows.arrow_schema import schema_of
from history_pipeline.rows.columns import HISTORY_COLUMNS
from history_pipeline.upkeep import delta_export
from stickybus.cli import main
from tests import requirements as needs
from tests.pipeline.arrow_archive import all_texts, write_archive
from tests.pipeline.sample import ended, sample_history

pytestmark = [needs.sqlite, pytest.mark.usefixtures("database_name")]
SECRET = "a name that must go"


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def archived(database_url: URL, source: str) -> None:
    """An archive of three runs."""
    private = ended(900, event_json=json.dumps({"name": SECRET}))
    write_archive(database_url, source, [sample_history(), [ended(800), ended(801)], [private]])


def _by_id(rows: pa.Table) -> list[dict[str, Any]]:
    in_order = rows.sort_by([("record_id", "ascending"), ("finished_date", "ascending")])
    found: list[dict[str, Any]] = in_order.to_pylist()
    return found


def table_of(target: str, version: int | None = None) -> pa.Table:
    return DeltaTable(f"{target}/bus_events", version=version).to_pyarrow_table()


def rows_of(target: str, version: int | None = None) -> list[dict[str, Any]]:
    """The rows of the table, as the format's own library reads them, by id and end."""
    read = table_of(target, version).select([column.name for column in HISTORY_COLUMNS])
    return _by_id(read)


def rows_in(folder: str) -> list[dict[str, Any]]:
    """The rows in all Parquet files below a folder, likewise."""
    read = pa.concat_tables(pq.ParquetFile(path).read() for path in Path(folder).rglob("*.parquet"))
    return _by_id(read)


def files_in(target: str) -> set[Path]:
    return set(Path(target).rglob("*.parquet"))


@pytest.mark.usefixtures("archived")
def test_a_table_has_the_rows_of_the_archive(source: str, target: str) -> None:
    done = export_delta(source, target)
    assert rows_of(target) == rows_in(source) != []
    assert done == Exported(
        table="bus_events",
        target=f"{target}/bus_events",
        version=0,
        manifest=3,
        files=(files := len(files_in(source))),
        entries=len(rows_in(source)),
        added=files,
        removed=0,
    )
    assert all(path.stat().st_mode & 0o077 == 0 for path in files_in(target))


@pytest.mark.usefixtures("archived")
def test_another_engine_reads_one_day_and_counts_by_state(source: str, target: str) -> None:
    export_delta(source, target)
    exported = DeltaTable(f"{target}/bus_events").to_pyarrow_dataset()
    counted = (
        duckdb.from_arrow(exported).aggregate("event_date, processing_state, count(*)").fetchall()
    )
    rows = rows_in(source)
    told = {(row["finished_date"].date(), row["processing_state"]) for row in rows}
    assert {(day, state) for day, state, _ in counted} == told
    assert sum(count for *_, count in counted) == len(rows)
    assert len({day for day, *_ in counted}) > 1


def test_the_next_export_copies_only_what_is_new(
    database_url: URL, source: str, target: str
) -> None:
    write_archive(database_url, source, [[ended(1)], [ended(2)]])
    manifests = Path(source, "bus_events", "manifests")
    newest = manifests / "00000002.json"
    content = newest.read_bytes()
    newest.unlink()
    assert export_delta(source, target).added == 1
    [first] = files_in(target)
    inode = first.stat().st_ino

    newest.write_bytes(content)
    done = export_delta(source, target)
    assert (done.added, done.removed, done.version, done.entries) == (1, 0, 1, 2)
    assert first.stat().st_ino == inode
    assert len(rows_of(target, version=0)) == 1
    assert rows_of(target) == rows_in(source)

    again = export_delta(source, target)
    assert (again.added, again.removed, again.version) == (0, 0, 1)


@pytest.mark.usefixtures("archived")
def test_with_the_database_a_lost_manifest_is_an_error(
    database_url: URL, source: str, target: str
) -> None:
    Path(source, "bus_events", "manifests", "00000003.json").unlink()
    with pytest.raises(ArchiveDamagedError, match="00000003"):
        export_delta(source, target, database=database_url)
    assert not Path(target).exists()


@pytest.mark.usefixtures("archived")
def test_what_was_erased_leaves_the_table_and_then_the_disk(
    database_url: URL, source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_delta(source, target)
    assert SECRET in all_texts(target)
    erase_archived(source, database=database_url, record_ids=[900])

    done = export_delta(source, target)
    assert (done.added, done.removed, done.version) == (1, 1, 1)
    assert SECRET not in str(rows_of(target))
    assert len(rows_of(target)) == done.entries
    # Queries that have begun still read the old file.
    assert SECRET in str(rows_of(target, version=0))

    monkeypatch.setattr(delta_export, "REPLACED_HOURS", 0)
    export_delta(source, target)
    assert SECRET not in all_texts(target)
    assert len(rows_of(target)) == done.entries


@pytest.mark.usefixtures("archived")
@pytest.mark.parametrize("harm", ["changed", "missing"])
def test_a_damaged_file_is_an_error_and_the_table_stays_as_it_was(
    source: str, target: str, harm: str
) -> None:
    last = max(files_in(source))
    content = last.read_bytes()
    if harm == "missing":
        last.unlink()
    else:
        last.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ArchiveDamagedError, match=last.name):
        export_delta(source, target)
    assert not DeltaTable.is_deltatable(f"{target}/bus_events")

    last.write_bytes(content)
    export_delta(source, target)
    assert rows_of(target) == rows_in(source)


@pytest.mark.usefixtures("archived")
def test_an_export_that_was_cut_off_before_its_commit_is_done_again(
    source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CutOffError(BaseException):
        pass

    def cut_off(*_arguments: object, **_options: object) -> None:
        raise CutOffError

    with monkeypatch.context() as patched:
        patched.setattr(delta_export, "create_table_with_add_actions", cut_off)
        with pytest.raises(CutOffError):
            export_delta(source, target)
    assert files_in(target)
    assert not DeltaTable.is_deltatable(f"{target}/bus_events")
    assert export_delta(source, target).version == 0
    assert rows_of(target) == rows_in(source)


@pytest.mark.usefixtures("archived")
def test_exports_at_once_make_one_table(database_url: URL, source: str, target: str) -> None:
    """Whoever is too late is told so, and nothing is in the table twice."""
    export_delta(source, target)
    for record_id in (800, 801, 900):
        erase_archived(source, database=database_url, record_ids=[record_id])
        begin, refused = threading.Barrier(4), list[Exception]()

        def export(begin: threading.Barrier = begin, refused: list[Exception] = refused) -> None:
            begin.wait(20)
            try:
                export_delta(source, target)
            except ArchiveConflictError as error:
                refused.append(error)

        threads = [threading.Thread(target=export) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) < 4
        live = [row for row in rows_of(target) if row["record_id"] == record_id]
        assert [row["event_json"] for row in live] == [None]
        assert len(rows_of(target)) == export_delta(source, target).entries


@pytest.mark.usefixtures("archived")
def test_a_directory_that_holds_something_else_is_refused(
    tmp_path: Path, database_url: URL, source: str, target: str
) -> None:
    with pytest.raises(ArchiveConflictError, match="the archive's own can't be it"):
        export_delta(source, source)
    write_deltalake(f"{target}/bus_events", pa.table({"a": [1]}))
    with pytest.raises(ArchiveConflictError, match="not made from archive"):
        export_delta(source, target)
    other = str(tmp_path / "other")
    write_archive(database_url, other, [[ended(1)]])
    export_delta(other, lake := str(tmp_path / "lake of the other"))
    with pytest.raises(ArchiveConflictError, match="not made from archive"):
        export_delta(source, lake)
    assert [row["record_id"] for row in rows_of(lake)] == [1]


@pytest.mark.usefixtures("archived")
def test_an_older_copy_of_the_archive_takes_nothing_out_of_the_table(
    tmp_path: Path, database_url: URL, source: str, target: str
) -> None:
    shutil.copytree(source, older := str(tmp_path / "older"))
    erase_archived(source, database=database_url, record_ids=[900])
    export_delta(source, target)
    with pytest.raises(ArchiveConflictError, match="it is an older copy"):
        export_delta(older, target)
    assert SECRET not in str(rows_of(target))


@pytest.mark.usefixtures("archived")
def test_a_column_that_history_gets_comes_to_the_table(
    database_url: URL, source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(delta_export, "schema_of", lambda columns: schema_of([*columns][:-1]))
        export_delta(source, target)
    assert "last_error" not in table_of(target).column_names
    erase_archived(source, database=database_url, record_ids=[900])
    export_delta(source, target)
    assert any(row["last_error"] for row in rows_of(target))


def test_where_nothing_was_archived_nothing_is_written(source: str, target: str) -> None:
    with pytest.raises(ArchiveNotFoundError):
        export_delta(source, target)
    assert not Path(target).exists()


@pytest.mark.parametrize("known", [True, False])
def test_an_archive_that_holds_no_run_yet_is_not_exported(
    database_url: URL, source: str, target: str, capsys: pytest.CaptureFixture[str], *, known: bool
) -> None:
    PersistentBus(database_url).close()
    Path(source, "bus_events", "manifests").mkdir(parents=True)
    url = ["--url", database_url.render_as_string(hide_password=False)] if known else []
    assert main(["history", "export", "--in", source, "--to", target, *url]) == 1
    assert "nothing was archived to" in capsys.readouterr().err
    assert not Path(target).exists()
    assert main(["history", "log", "--in", source, *url]) == 0
    assert capsys.readouterr().out == "Nothing was archived of bus_events yet.\n"


@pytest.mark.usefixtures("archived")
def test_a_log_that_is_no_delta_log_is_an_error_that_names_the_folder(
    source: str, target: str
) -> None:
    export_delta(source, target)
    log = Path(target, "bus_events", "_delta_log", "00000000000000000000.json")
    log.write_text("no log")
    with pytest.raises(ArchiveTargetError, match="bus_events can't be read or written"):
        export_delta(source, target)


@pytest.mark.usefixtures("archived")
def test_the_command_tells_what_came_and_went(
    source: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "export", "--in", source, "--to", target]) == 0
    assert "version 0:" in capsys.readouterr().out
    assert main(["history", "export", "--in", source, "--to", target, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["version"], told["added"], told["manifest"]) == (0, 0, 3)

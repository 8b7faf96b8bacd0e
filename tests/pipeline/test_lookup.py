"""Lookups in an archive find what the database found, without Spark and without Java."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

import stickybus
from history_pipeline import archive_history, find_archived, read_archive
from history_pipeline.archives.search import Search
from history_pipeline.errors import ArchiveDamagedError, ArchiveNotFoundError, ArchiveTargetError
from queue_core.errors import InvalidPostError
from queue_core.model.entry import Entry
from queue_core.model.states import State
from queue_core.storage.search_keys import KEYLESS
from sql.search_keys import of_text
from stickybus.cli import main
from tests import requirements as needs
from tests.pipeline.sample import START, ended, sample_history, write_rows

FROZEN = Path(__file__).parent / "frozen"
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)

SEARCHES: list[dict[str, Any]] = [
    {},
    {"limit": 0},
    {"limit": 5},
    {"queue_name": "billing:réminders"},
    {"event_name": "Order", "limit": 3},
    {"states": State.FAILED},
    {"states": [State.REAPED, State.REMOVED], "limit": 4},
    {"states": []},
    {"record_ids": [3, 40, 12, 99]},
    {"record_ids": []},
    {"record_ids": [7], "states": State.FAILED},
    {"search_key1": 7},
    {"search_key1": -1, "search_key2": 2**62},
    {"search_key2": KEYLESS, "limit": 2},
    {"search_key1": "customer 4711"},
    {"search_key1": "4711"},
    {"search_key2": "customer 4711"},
    {"finished_since": MIDNIGHT},
    {"finished_before": MIDNIGHT},
    {"finished_since": MIDNIGHT, "finished_before": MIDNIGHT},
    {"finished_since": START, "after_id": 30},
    {"error_type": "ValueError"},
    {"error_text": "TRACEBACK", "limit": 2},
]


@needs.any_database
def test_an_archive_answers_as_the_database_did(
    spark: SparkSession, history_url: URL, tmp_path: Path
) -> None:
    """Also across runs, and for keys that are texts."""
    key = of_text("customer 4711")
    named = json.dumps({"!search_key1": key.text}, separators=(",", ":"))
    # The number alone is not the text: another text may have it.
    texts = [
        ended(41, search_key1=key.number, headers=named),
        ended(42, search_key1=key.number, headers='{"!search_key1":"another"}'),
    ]
    write_rows(history_url, texts)
    with stickybus.inspect(history_url) as inspector:
        before = [inspector.history(table="bus_events", **search) for search in SEARCHES]
        of_all = inspector.history(limit=7)
    archive_history(spark, history_url, str(tmp_path), before=MIDNIGHT)
    archive_history(spark, history_url, str(tmp_path))

    found = [find_archived(str(tmp_path), table="bus_events", **search) for search in SEARCHES]

    for search, expected, answer in zip(SEARCHES, before, found, strict=True):
        assert answer == expected, search
    assert [len(answer) for answer in found[:3]] == [len(sample_history()) + 2, 0, 5]
    assert [one.entry.record_id for one in found[SEARCHES.index({"search_key1": key.text})]] == [41]
    assert find_archived(str(tmp_path), limit=7) == of_all


@pytest.mark.parametrize("sample", sorted(path.name for path in FROZEN.iterdir()))
def test_lookups_in_archives_of_any_version_are_what_spark_reads(
    spark: SparkSession, sample: str
) -> None:
    rows = read_archive(spark, str(FROZEN / sample), "bus_events").toArrow().to_pylist()
    expected = [
        Entry(**{**row, "processing_state": State(row["processing_state"])})
        for row in sorted(rows, key=lambda row: row["record_id"], reverse=True)
    ]
    found = find_archived(str(FROZEN / sample), table="bus_events")
    assert [one.entry for one in found] == expected
    assert len(found) == 37


@pytest.mark.parametrize("limit", [0, 1, 3, 7, 100, None])
def test_the_highest_rows_are_those_of_all_row_groups_and_the_last_of_equal_ones(
    tmp_path: Path, limit: int | None
) -> None:
    dates, ids = [5, 1, 5, 3, 5, 2, 5, 4, 5, 1], [9, 7, 2, 4, 9, 6, 2, 8, 9, 7]
    table = pa.table({"date": dates, "id": ids, "place": range(len(ids))})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=9)
    expected = sorted(zip(dates, ids, range(len(ids)), strict=True), reverse=True)[:limit]

    with pq.ParquetFile(tmp_path / "rows.parquet") as parquet:
        found = Search([], ("date", "id"), table.schema).rows(parquet, table.column_names, limit)
        assert sorted(found, reverse=True) == expected


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of an archive, whose directory's name needs care."""
    return shutil.copytree(FROZEN / "format-2", tmp_path / "an archive with ü and %20")


def test_only_files_that_can_hold_it_are_opened(copy: Path) -> None:
    [first_day] = copy.rglob("event_date=2026-03-01/*.parquet")
    first_day.unlink()
    assert find_archived(str(copy), table="bus_events", record_ids=[20])
    assert find_archived(str(copy), table="bus_events", finished_since=MIDNIGHT)
    assert find_archived(str(copy), table="bus_events", limit=5)
    assert find_archived(copy.as_uri(), table="bus_events", after_id=20)
    with pytest.raises(ArchiveDamagedError, match=first_day.name):
        find_archived(str(copy), table="bus_events", record_ids=[1])


def test_a_damaged_file_is_named(copy: Path) -> None:
    [file] = copy.rglob("event_date=2026-03-01/*.parquet")
    file.write_bytes(b"no Parquet")
    with pytest.raises(ArchiveDamagedError, match=file.name):
        find_archived(str(copy), finished_before=MIDNIGHT)


def test_what_can_not_be_looked_up_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArchiveNotFoundError, match="there is no archive of orders"):
        find_archived(str(FROZEN / "format-2"), table="orders")
    with pytest.raises(ArchiveNotFoundError, match="holds no archive"):
        find_archived(str(tmp_path))
    with pytest.raises(ArchiveTargetError, match="nowhere://bucket/bus_events is no directory"):
        find_archived("nowhere://bucket", table="bus_events")
    with pytest.raises(InvalidPostError, match="search_key1"):
        find_archived(str(tmp_path), table="bus_events", search_key1=2**70)
    for names in ({"queue_name": "\udcff"}, {"event_name": "\udcff"}, {"event_name": 5}):
        with pytest.raises(InvalidPostError, match="_name="):
            find_archived(str(FROZEN / "format-2"), **names)


COMMAND = """import sys
from stickybus.cli import main
sys.exit(main(sys.argv[1:]) or "pyspark" in sys.modules)"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["history", "list", "--key1", "7", "--since", "2026-03-02T00:00:00Z"],
        ["history", "list", "--table", "bus_events", "--key1", "7"],
        ["entries", "show", "21"],
    ],
)
def test_neither_java_nor_spark_is_needed(arguments: list[str], tmp_path: Path) -> None:
    """The commands run where there is no program at all, and import no Spark."""
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    assert main(["schema", "create", "--url", url]) == 0
    environment = {key: text for key, text in os.environ.items() if "JAVA" not in key}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            COMMAND,
            *arguments,
            "--archive",
            str(FROZEN / "format-2"),
            "--json",
            "--url",
            url,
        ],
        env=environment | {"PATH": ""},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    [entry] = found if isinstance(found, list) else [found]
    assert (entry["record_id"], entry["search_key1"], entry["search_key2"]) == (21, 7, 8)


def test_a_lookup_does_not_load_the_engine() -> None:
    """What opens databases takes longer to load than the lookup itself."""
    program = f"""import sys
from history_pipeline import find_archived
assert find_archived({str(FROZEN / "format-2")!r}, table="bus_events", record_ids=[21])
sys.exit(bool({{"queue_core.engine", "sql.database"}} & sys.modules.keys()))"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=200)
    assert done.returncode == 0


def test_without_a_database_an_entry_is_sought_in_the_archive_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["entries", "show", "--url", "", "--archive", str(FROZEN / "format-2")]
    assert main([*command, "21", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["record_id"] == 21
    assert main([*command, "999"]) == 1
    assert f"bus_events: there is no entry 999 in {FROZEN}" in capsys.readouterr().err
    assert main([*command[:-2], "21"]) == 2


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert main(["history", "list", "--archive", str(FROZEN / "format-2")]) == 1
    assert "pip install 'stickybus[archive]'" in capsys.readouterr().err


def test_dead_letters_are_not_known_to_an_archive(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["history", "list", "--dead-letters", "--archive", str(FROZEN / "format-2")]
    assert main(arguments) == 2
    assert "--dead-letters needs the database" in capsys.readouterr().err

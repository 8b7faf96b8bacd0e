"""Values are written to files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stickybus import ConfigurationError, Insert, WorkQueue
from stickybus.task_handlers import write_files
from tests import requirements as needs
from tests.contract.work_queue.ready_handlers.running import run, values


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose own folder has nothing else."""
    made = tmp_path / "files" / "folder"
    made.mkdir(parents=True)
    return made


@needs.any_database
def test_values_are_written_to_files(work: WorkQueue, database_name: str, folder: Path) -> None:
    big = 2**80
    work.modify(
        Insert(queue="in", id="json", value={"a": [big, None]}),
        Insert(queue="in", id="bytes", value=b"\xff"),
    )

    run(work, write_files(folder, results="out"))

    assert json.loads((folder / "json.json").read_bytes()) == {"a": [big, None]}
    assert (folder / "bytes.bin").read_bytes() == b"\xff"
    assert {*values(work)} == {str(path) for path in folder.iterdir()}
    assert work.queues() == {"out": 2}


@needs.any_database
@pytest.mark.parametrize("id_", ["../out", "/out", "..", ".", "ß" * 32])
def test_a_file_is_in_the_folder_whatever_the_id_of_its_task(
    work: WorkQueue, database_name: str, folder: Path, id_: str
) -> None:
    work.insert("in", 1, id=id_)

    run(work, write_files(folder))

    assert [path.read_text() for path in folder.iterdir()] == ["1"]
    assert [*folder.parent.iterdir()] == [folder]


@needs.any_database
def test_a_file_that_can_not_be_written_is_a_failure_and_leaves_nothing(
    work: WorkQueue, database_name: str, folder: Path
) -> None:
    (folder / "taken.json").mkdir()
    work.insert("in", 1, id="taken")

    run(work, write_files(folder))

    [failed] = work.tasks("in/err")
    assert "IsADirectoryError" in failed.err
    assert [path.name for path in folder.iterdir()] == ["taken.json"]


def test_files_need_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Make it first"):
        write_files(tmp_path / "none")

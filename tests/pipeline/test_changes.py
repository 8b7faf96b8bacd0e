"""Each change of an archive tells who made it, and when."""

from __future__ import annotations

import getpass
import json
import platform
from pathlib import Path

import pytest
from sqlalchemy import URL

from history_pipeline import archive_changes, erase_archived
from history_pipeline.archives.manifest import Author, Kind
from stickybus.cli import main
from tests import requirements as needs
from tests.pipeline.arrow_archive import BEFORE, write_archive
from tests.pipeline.sample import sample_history

FROZEN = Path(__file__).parent / "frozen"


def test_each_change_tells_who_made_it_and_what_it_was_about(
    database_url: URL, tmp_path: Path
) -> None:
    rows = sample_history()
    target = str(tmp_path / "archive")
    write_archive(database_url, target, [rows[:20], rows[20:]])
    erased = erase_archived(target, database=database_url, record_ids=[1, 2])

    [first, second, last] = archive_changes(target, database=database_url)

    assert [one.kind for one in (first, second, last)] == ["archive", "archive", "erasure"]
    assert [one.number for one in (first, second, last)] == [1, 2, 3]
    assert (first.entries, second.entries, last.entries) == (20, len(rows) - 20, 2)
    assert (first.first_id, second.last_id) == (1, 40)
    assert (last.run, last.files_added, last.files_replaced) == (erased.run, 1, 1)
    assert first.began < second.began < BEFORE.replace(year=2100)
    assert last.kind is Kind.ERASURE
    author = Author(getpass.getuser(), platform.node(), database_url.username)
    assert {one.author for one in (first, second, last)} == {author}


def test_manifests_of_earlier_versions_tell_no_author() -> None:
    for number in (1, 2, 3, 4):
        changes = archive_changes(str(FROZEN / f"format-{number}"))
        assert {change.author for change in changes} == {None}


@needs.any_database
def test_the_command_shows_all_changes(
    database_url: URL, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "archive")
    write_archive(database_url, target, [sample_history()])
    url = database_url.render_as_string(hide_password=False)

    def run(*arguments: str) -> str:
        assert main(["history", "log", "--in", target, "--url", url, *arguments]) == 0
        return capsys.readouterr().out

    [change] = json.loads(run("--json"))
    assert (change["kind"], change["first_id"], change["last_id"]) == ("archive", 1, 40)
    assert change["author"]["user"] == getpass.getuser()
    assert "1 to 40" in run()

"""Verification without Spark finds every change to an archive, of a single bit even."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from history_pipeline import checksums, verify_archive
from history_pipeline.errors import ArchiveDamagedError
from stickybus.cli import main

FROZEN = Path(__file__).parent / "frozen"
FLIPS = 2_000


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A copy of a small archive: two runs and a compaction."""
    return shutil.copytree(FROZEN / "format-3", tmp_path / "archive")


def files_of(archive: Path) -> list[Path]:
    return sorted(path for path in archive.rglob("*") if path.is_file())


def found(archive: Path) -> bool:
    """Whether verification finds something."""
    try:
        return bool(verify_archive(str(archive)).damaged)
    except ArchiveDamagedError:
        return True


def test_every_bit_that_flips_is_found(archive: Path) -> None:
    """In manifests and in files of rows, as often in each; there are no other files."""
    files = files_of(archive)
    assert {path.suffix for path in files} == {".json", ".parquet"}
    assert not found(archive)
    chance = random.Random(27)  # noqa: S311 -- the same flips each time
    missed = list[tuple[str, int, int]]()
    for flip in range(FLIPS):
        path = files[flip % len(files)]
        content = path.read_bytes()
        place, bit = chance.randrange(len(content)), chance.randrange(8)
        changed = bytearray(content)
        changed[place] ^= 1 << bit
        path.write_bytes(changed)
        if not found(archive):
            missed.append((path.name, place, bit))
        path.write_bytes(content)
    assert missed == []
    assert not found(archive)


def test_each_byte_of_the_newest_manifest_counts(archive: Path) -> None:
    """Nothing follows it that would name its sum. One byte may even make it an older format."""
    newest = archive / "bus_events/manifests/00000003.json"
    content = newest.read_bytes()
    for changed in (
        content.replace(b'"format": 3', b'"format": 2'),
        content.replace(b'"format": 3', b'"format": 1'),
        b'"sha255": "'.join(content.rsplit(b'"sha256": "', 1)),
        content[:-1],
        content + b"\n",
        content + b" ",
    ):
        newest.write_bytes(changed)
        with pytest.raises(ArchiveDamagedError, match=newest.name):
            verify_archive(str(archive))


@pytest.mark.parametrize("kind", ["*.json", "*.parquet"])
def test_a_file_that_is_gone_cut_or_another_is_found(archive: Path, kind: str) -> None:
    first, second, *_ = sorted(archive.rglob(kind))
    content = first.read_bytes()
    for changed in (None, b"", content[:-1], content + b"\0", second.read_bytes()):
        first.unlink()
        if changed is not None:
            first.write_bytes(changed)
        assert found(archive), changed
        first.write_bytes(content)
    assert not found(archive)


def test_sha256sum_checks_an_archive_by_the_list_that_is_written(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "verify", "--in", str(archive), "--sums"]) == 0
    sums = tmp_path / "sums"
    sums.write_text(capsys.readouterr().out)
    assert len(sums.read_text().splitlines()) == len(files_of(archive)) == 5

    def checked() -> int:
        command = ["sha256sum", "--check", "--quiet", "--strict", str(sums)]
        return subprocess.run(
            command, cwd=archive / "bus_events", capture_output=True, check=False
        ).returncode

    assert checked() == 0
    [data, *_] = archive.rglob("*.parquet")
    data.write_bytes(data.read_bytes()[:-1])
    assert checked() == 1


def test_the_command_tells_what_is_damaged(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "verify", "--in", str(archive)]) == 0
    assert capsys.readouterr().out.endswith(": all as their manifests say\n")
    [data, *_] = archive.rglob("*.parquet")
    data.unlink()
    assert main(["history", "verify", "--in", str(archive)]) == 1
    out, err = capsys.readouterr()
    assert data.name in err
    assert out.endswith(": 1 not sound\n")
    assert main(["history", "verify", "--in", str(archive), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["damaged"] == [
        str(data.relative_to(archive / "bus_events"))
    ]


def test_files_of_the_first_format_are_compared_by_size_and_the_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = shutil.copytree(FROZEN / "format-1", tmp_path / "archive")
    assert main(["history", "verify", "--in", str(archive)]) == 0
    assert "2 files of an old format: compared by size alone" in capsys.readouterr().out
    [live] = [path for path in checksums(str(archive)) if "event_date=2026-03-01" in path]
    file = archive / "bus_events" / live
    file.write_bytes(file.read_bytes() + b"\0")
    assert verify_archive(str(archive)).damaged == [live]

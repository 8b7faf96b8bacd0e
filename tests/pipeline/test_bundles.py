"""Bundles of manifests save requests, and prove no less than the manifests' own files."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import URL

from history_pipeline import erase_archived, find_archived, verify_archive
from history_pipeline.archives import bundles
from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.bundles import bundled_manifests, write_bundles
from history_pipeline.archives.manifest import Manifest, decoded, digest
from history_pipeline.errors import ArchiveDamagedError
from history_pipeline.rows.fingerprint import joined
from tests import requirements as needs
from tests.pipeline.arrow_archive import write_archive
from tests.pipeline.sample import ended

FROZEN = Path(__file__).parent / "frozen"
TABLE = "bus_events"
RUNS, SIZE = 7, 3
Log = ArchiveLog[ArrowStorage]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "SIZE", SIZE)


@pytest.fixture
def folder(database_url: URL, target: str) -> Path:
    """The manifests of an archive of seven runs, and of an erasure, which has made two bundles."""
    write_archive(database_url, target, [[ended(number)] for number in range(1, RUNS + 1)])
    erase_archived(target, database=database_url, record_ids=[5])
    return Path(target) / TABLE / "manifests"


def log_of(folder: Path) -> Log:
    return ArchiveLog(ArrowStorage(str(folder.parent)), TABLE)


def path(folder: Path, number: int) -> Path:
    return folder / f"{number:08}.json"


def bundle(folder: Path, last: int) -> Path:
    return folder / f"{last:08}.bundle"


def packed(contents: list[bytes]) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(contents))


def unpacked(file: Path) -> list[bytes]:
    return msgspec.msgpack.decode(zlib.decompress(file.read_bytes()), type=list[bytes])


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read whole, as those of rows are not."""
    names, plain = list[str](), ArrowStorage.read

    def reading(storage: ArrowStorage, name: str) -> bytes:
        names.append(name.rpartition("/")[2])
        return plain(storage, name)

    monkeypatch.setattr(ArrowStorage, "read", reading)
    return names


@needs.any_database
def test_a_run_bundles_what_runs_before_it_have_published(folder: Path, read: list[str]) -> None:
    assert sorted(file.name for file in folder.glob("*.bundle")) == [
        "00000003.bundle",
        "00000006.bundle",
    ]
    found = bundled_manifests(log_of(folder))
    assert read == ["00000003.bundle", "00000006.bundle", "00000007.json", "00000008.json"]
    assert found == log_of(folder).open()
    assert len(found) == RUNS + 1


@needs.any_database
def test_a_bundle_that_was_lost_is_written_by_the_next_run(
    folder: Path, database_url: URL, read: list[str]
) -> None:
    before = bundle(folder, 3).read_bytes()
    bundle(folder, 3).unlink()
    assert bundled_manifests(log_of(folder)) == log_of(folder).open()
    erase_archived(str(folder.parents[1]), database=database_url, record_ids=[6])
    assert bundle(folder, 3).read_bytes() == before
    # What is there is not made anew.
    written = bundle(folder, 3).stat().st_mtime_ns
    read.clear()
    write_bundles(log_of(folder), log_of(folder).open())
    assert bundle(folder, 3).stat().st_mtime_ns == written
    assert read == [path(folder, number).name for number in range(1, 10)]


def forged(content: bytes, **fields: Any) -> bytes:
    """A manifest with other values, by somebody who also gives it the SHA-256 of these."""
    return msgspec.structs.replace(decoded(content, "it"), **fields).encoded()


def a_row_less(contents: list[bytes]) -> list[bytes]:
    """Manifests of which the first names no file, each with the SHA-256 of the one before."""
    found = [forged(contents[0], files=[], fingerprint=joined([]))]
    for content in contents[1:]:
        found.append(forged(content, previous_sha256=digest(found[-1])))
    return found


def without_a_past(contents: list[bytes]) -> list[bytes]:
    """Manifests of a format in which none names the one before."""
    return [forged(content, format=1, previous_sha256=None) for content in contents]


FORGERIES: dict[str, Callable[[list[bytes]], bytes]] = {
    "torn": lambda contents: packed(contents)[:-9],
    "empty": lambda contents: contents[0][:0],
    "no list": lambda contents: zlib.compress(b"manifest" * len(contents)),
    "one less": lambda contents: packed(contents[1:]),
    "one more": lambda contents: packed([*contents, contents[-1]]),
    "another order": lambda contents: packed(contents[::-1]),
    "no manifests": lambda contents: packed([b"{}" for _ in contents]),
    "a row less": lambda contents: packed(a_row_less(contents)),
    "without a past": lambda contents: packed(without_a_past(contents)),
}


@needs.any_database
@pytest.mark.parametrize("last", [3, 6])
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_bundle_that_does_not_fit_changes_no_answer(
    folder: Path, forgery: str, last: int, caplog: pytest.LogCaptureFixture
) -> None:
    target = str(folder.parents[1])
    before = find_archived(target)
    assert "bundle_passed_over" not in caplog.text
    file = bundle(folder, last)
    file.write_bytes(FORGERIES[forgery](unpacked(file)))
    assert find_archived(target) == before
    assert "bundle_passed_over" in caplog.text
    assert verify_archive(target).damaged == []


@needs.any_database
def test_the_newest_manifest_is_no_matter_of_a_bundle(folder: Path) -> None:
    """A forger of all of them can't forge the file that vouches for them."""
    log = log_of(folder)
    contents = [content for _, content in sorted(log.contents().items())]
    nine = forged(contents[-1], number=9, previous_sha256=digest(contents[-1]))
    path(folder, 9).write_bytes(nine)
    before = log.open()
    bundle(folder, 9).write_bytes(packed(a_row_less([*contents, nine])[6:]))
    assert bundled_manifests(log) == before


@needs.any_database
def test_a_manifest_that_is_gone_is_missed_though_a_bundle_holds_it(folder: Path) -> None:
    path(folder, 2).unlink()
    with pytest.raises(ArchiveDamagedError, match="00000002"):
        bundled_manifests(log_of(folder))


@needs.any_database
def test_a_changed_manifest_is_found_by_verification_and_misleads_no_lookup(folder: Path) -> None:
    target, damaged = str(folder.parents[1]), path(folder, 2)
    before = find_archived(target)
    damaged.write_bytes(forged(damaged.read_bytes(), files=[], replaces=["data/other"]))
    assert find_archived(target) == before
    with pytest.raises(ArchiveDamagedError, match="00000002"):
        verify_archive(target)


def test_manifests_for_which_none_vouches_are_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Format 1 does not name the manifest before."""
    monkeypatch.setattr(bundles, "SIZE", 1)
    folder = shutil.copytree(FROZEN / "format-1" / TABLE, tmp_path / TABLE) / "manifests"
    log = log_of(folder)
    manifests: list[Manifest] = log.open()
    assert [one.previous_sha256 for one in manifests] == [None] * 3
    write_bundles(log, manifests)
    assert not list(folder.glob("*.bundle"))
    for number in (1, 2):
        content = forged(path(folder, number).read_bytes(), run="another")
        bundle(folder, number).write_bytes(packed([content]))
    assert bundled_manifests(log) == manifests

"""Wheel and sdist of one commit are the same bytes whenever and wherever they are built."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packages import RELEASED

ROOT = Path(__file__).resolve().parents[2]
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "site", "dist", "build")


def built(folder: Path, *, at: int) -> dict[str, Path]:
    """Build a copy whose files were changed `at` this time, in another time zone and locale."""
    copy = folder / "copy"
    shutil.copytree(ROOT, copy, ignore=_LEFT_OUT)
    shutil.copy(ROOT / ".gitignore", copy)
    for path in copy.rglob("*"):
        os.utime(path, (at, at))
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600", "TZ": f"Etc/GMT+{at % 12}"}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder / "dist")]
    subprocess.run(command, cwd=copy, env=environment, check=True, capture_output=True)
    return {path.suffix: path for path in (folder / "dist").iterdir()}


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Path]]:
    return [
        built(tmp_path_factory.mktemp("release"), at=moment)
        for moment in (1_700_000_001, 1_750_000_002)
    ]


@pytest.mark.parametrize("kind", [".whl", ".gz"])
def test_two_builds_are_the_same_bytes(twice: list[dict[str, Path]], kind: str) -> None:
    first, second = (hashlib.sha256(files[kind].read_bytes()).hexdigest() for files in twice)
    assert first == second


def test_both_hold_every_package_with_its_marker_for_type_checkers(
    twice: list[dict[str, Path]],
) -> None:
    markers = {f"{package}/py.typed" for package in RELEASED}
    with zipfile.ZipFile(twice[0][".whl"]) as wheel:
        assert markers <= set(wheel.namelist())
    with tarfile.open(twice[0][".gz"]) as sdist:
        assert markers <= {name.partition("/")[2] for name in sdist.getnames()}

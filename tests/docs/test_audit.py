"""The page on audits: its commands run, over an archive with an erasure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import URL

from history_pipeline import erase_archived
from tests import requirements as needs
from tests.docs.code_blocks import ROOT, blocks
from tests.pipeline.arrow_archive import write_archive
from tests.pipeline.sample import ended, sample_history

PAGE = ROOT / "docs" / "how-to" / "audit.md"


@pytest.fixture
def archive(database_url: URL, tmp_path: Path) -> Path:
    """An archive of three manifests, the last of which is that of an erasure."""
    rows = [*sample_history(), ended(4711, "FAILED", class_name="push", search_key1=4711)]
    write_archive(database_url, str(tmp_path / "archive"), [rows[:20], rows[20:]])
    erase_archived(str(tmp_path / "archive"), database=database_url, record_ids=[1, 40])
    return tmp_path / "archive"


def run(archive: Path, url: URL, script: str) -> subprocess.CompletedProcess[str]:
    commands = str(Path(sys.executable).parent)
    return subprocess.run(
        ["/bin/sh", "-e", "-c", _moved(script, archive)],
        cwd=archive.parent,
        env={
            **os.environ,
            "PATH": f"{commands}:{os.environ['PATH']}",
            "STICKYBUS_URL": url.render_as_string(hide_password=False),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def _moved(script: str, archive: Path) -> str:
    lake = str(archive.with_name("lake"))
    return script.replace("/var/archive", str(archive)).replace("/var/lake", lake)


@needs.any_database
@pytest.mark.timeout(280)
def test_an_auditors_commands_run(archive: Path, database_url: URL) -> None:
    done = run(archive, database_url, "\n".join(blocks(PAGE, "sh")))

    assert done.returncode == 0, done.stderr
    assert "'class_name': 'push', 'processing_state': 'FAILED'" in done.stdout
    assert "all as their manifests say" in done.stdout
    assert "erasure" in done.stdout
    assert re.search(r"version 0: \d+ added, 0 removed", done.stdout)
    assert "'event_date': datetime.date(2026, 3, 2)" in done.stdout
    counted = re.findall(r"│ (?:PROCESSED|FAILED|REMOVED|REAPED) +│ +(\d+) │", done.stdout)
    assert sum(map(int, counted)) == len(sample_history()) + 1


@needs.any_database
def test_the_programs_of_the_page_find_a_change(archive: Path, database_url: URL) -> None:
    [check] = [block for block in blocks(PAGE, "sh") if block.startswith("cat > check.py")]
    assert run(archive, database_url, check).returncode == 0

    manifest = archive / "bus_events" / "manifests" / "00000001.json"
    content = manifest.read_text("utf-8")
    manifest.write_text(content.replace('"bus_events"', '"bus_evants"'), "utf-8")
    assert "AssertionError: manifests/00000002.json" in run(archive, database_url, check).stderr
    manifest.write_text(content, "utf-8")
    [file, *_others] = sorted(archive.rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert "AssertionError: data/" in run(archive, database_url, check).stderr

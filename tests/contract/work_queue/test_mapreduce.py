"""The example of MapReduce counts each word once, whatever happens to its workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import URL

from tests import requirements as needs

ROOT = Path(__file__).parents[3]


def count(url: URL, *options: str, timeout_seconds: float = 100) -> str:
    """Run the example, which compares its result with what one process counts."""
    given = [f"--url={url.render_as_string(hide_password=False)}", *options]
    done = subprocess.run(
        [sys.executable, "-m", "examples.mapreduce.word_count", *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(120)
def test_92_words_of_some_documents_are_counted(database_url: URL) -> None:
    shown = count(database_url, "--documents=17", "--mappers=3", "--reducers=3", "--timeout=90")

    assert "17 documents, 1020 words" in shown
    assert "right" in shown


@pytest.mark.timeout(240)
@needs.any_database
def test_92_words_are_counted_once_though_workers_are_killed(
    database_url: URL, database_name: str
) -> None:
    shown = count(
        database_url,
        "--documents=400",
        "--mappers=10",
        "--reducers=6",
        "--kills=5",
        "--lease=1",
        "--timeout=200",
        timeout_seconds=220,
    )

    assert "right" in shown
    assert "5 processes killed" in shown

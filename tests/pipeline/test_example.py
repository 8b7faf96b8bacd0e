"""`make report` runs the whole way of history once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from history_pipeline import read_archive

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
def test_the_example_posts_handles_archives_reports_and_replays(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "report"
    command = [sys.executable, str(ROOT / "examples" / "audit.py"), str(folder)]

    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, check=False, cwd=tmp_path
    )

    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout
    assert "500 rows moved from bus_events_history to 1 file" in shown
    assert "Nothing was posted: this was a dry run" in shown
    assert "\n10 entries posted\n" in shown
    assert "10 rows moved from bus_events_history to 1 file" in shown
    assert "Complete: every entry found has ended once" in shown
    assert "2 files with 510 rows" in shown
    assert "<html" in (folder / "report.html").read_text("utf-8")
    rows = read_archive(spark, str(folder / "archive"))
    assert rows.where("processing_state = 'FAILED'").count() == 10
    assert rows.where("replay_of IS NOT NULL AND processing_state = 'PROCESSED'").count() == 10

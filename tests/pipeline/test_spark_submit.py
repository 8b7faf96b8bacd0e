"""The same jobs run by `spark-submit`, with executors in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from sqlalchemy import URL

from tests import requirements as needs
from tests.pipeline.sample import sample_history

FAILED = sum(row["processing_state"] == "FAILED" for row in sample_history()) - 1
"""All but the one that was tried again by hand."""
SPARK_SUBMIT = Path(sys.executable).parent / "spark-submit"
_JOB = '''
"""Counts a history by state, archives it, and posts the archived entries again."""

import json
import sys

from history_pipeline import archive_history
from history_pipeline import replay_archive
from history_pipeline import open_session
from history_pipeline import read_history


url, folder = sys.argv[1], sys.argv[3]
spark = open_session("counting")
history = read_history(spark, url, first_id=1).repartition(4, "record_id")
counts = history.groupBy("processing_state").count().collect()
states = {row.processing_state: row["count"] for row in counts}
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
found = {"states": states, "executors": executors, "master": spark.sparkContext.master}
found["memory"] = spark.conf.get("spark.executor.memory")
found["progress"] = spark.conf.get("spark.ui.showConsoleProgress")
found["archived"] = archive_history(spark, url, folder).entries
found["left"] = read_history(spark, url).count()
failed = "processing_state = 'FAILED'"
found["posted"] = replay_archive(spark, url, folder, where=failed, post=True).posted
spark.stop()
with open(sys.argv[2], "w") as file:
    json.dump(found, file)
'''


@needs.any_database
def test_a_submitted_job_reads_archives_and_replays_in_separate_executor_processes(
    history_url: URL, tmp_path: Path
) -> None:
    job, answer = tmp_path / "job.py", tmp_path / "answer.json"
    job.write_text(_JOB, encoding="utf-8")
    master = "local-cluster[2,1,512]"
    settings = {
        "spark.executor.memory": "512m",
        # Given by who submits, it wins over our default.
        "spark.ui.showConsoleProgress": "true",
        "spark.ui.enabled": "false",
    }
    options = [item for key, value in settings.items() for item in ("--conf", f"{key}={value}")]
    url = history_url.render_as_string(hide_password=False)
    ended = subprocess.run(
        [SPARK_SUBMIT, "--master", master, *options, job, url, answer, tmp_path / "archive"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(answer.read_text("utf-8"))
    states = [row["processing_state"] for row in sample_history()]
    assert found == {
        "states": {state: states.count(state) for state in set(states)},
        "executors": 2,
        "master": master,
        "memory": "512m",
        "progress": "true",
        "archived": len(states),
        "left": 0,
        "posted": FAILED,
    }

"""A job runs on a standalone cluster of one master and two workers, in three processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import URL

from history_pipeline import find_archived, verify_archive
from history_pipeline.jobs import archive as job
from tests import requirements as needs
from tests.pipeline.sample import sample_history

BIN = Path(sys.executable).parent
SAMPLE = len(sample_history())
HERE = "127.0.0.1"
# Its port would be a fixed one.
NO_REST = "-Dspark.master.rest.enabled=false"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a short life, Java would spend most on compiling."""
ENVIRONMENT = os.environ | {
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": HERE,
    "SPARK_MASTER_OPTS": NO_REST,
    "SPARK_DAEMON_JAVA_OPTS": QUICK,
    "SPARK_DAEMON_MEMORY": "256m",
}


@contextmanager
def daemon(name: str, *arguments: str | Path, ready: str) -> Iterator[re.Match[str]]:
    """A part of a cluster for the block, from the line on that says that it is ready."""
    ports = ("--host", HERE, "--port", "0", "--webui-port", "0")
    process = subprocess.Popen(
        [BIN / "spark-class", f"org.apache.spark.deploy.{name}", *ports, *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout
        told = list[str]()
        for line in process.stdout:
            told.append(line)
            if found := re.search(ready, line):
                break
        else:
            pytest.fail(f"{name} has ended: {''.join(told)[-3000:]}")
        # The little that it says from now on fits into the pipe.
        yield found
    finally:
        # With the executors that it has started.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster of two workers, with a core each."""
    with ExitStack() as cluster:
        ready = r"Starting Spark master at (spark://\S+)"
        address = cluster.enter_context(daemon("master.Master", ready=ready)).group(1)
        for number in range(2):
            worker = (
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                tmp_path / f"{number}",
                address,
            )
            registered = "Successfully registered with master"
            cluster.enter_context(daemon("worker.Worker", *worker, ready=registered))
        yield address


@needs.any_database
@pytest.mark.slow
def test_a_job_archives_on_the_workers_of_a_cluster_and_leaves_out_payloads(
    history_url: URL, tmp_path: Path, master: str
) -> None:
    url, target = history_url.render_as_string(hide_password=False), str(tmp_path / "archive")
    settings = {
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
    }
    options = [item for key, value in settings.items() for item in ("--conf", f"{key}={value}")]
    arguments = ("--url", url, "--to", target, "--without", "payload", "--ids-per-partition", "10")

    ended = subprocess.run(
        [BIN / "spark-submit", "--master", master, *options, str(job.__file__), *arguments],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout)["entries"] == SAMPLE
    assert len(list(tmp_path.glob("[01]/app-*/*/stderr"))) == 2
    found = find_archived(target, table="bus_events")
    assert len(found) == SAMPLE
    assert {(one.entry.event_json, one.entry.event_bytes) for one in found} == {(None, None)}
    verified = verify_archive(target, database=history_url)
    assert (verified.entries, verified.damaged, verified.lost) == (SAMPLE, [], [])

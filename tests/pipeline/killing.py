"""Jobs in processes of their own, which die at a point that they are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

from pyspark.sql import SparkSession
from sqlalchemy import URL

CUTS_SPARK = "while files are written"
"""Where Java must die with the process."""


def killed(spark: SparkSession, point: str, job: str, url: URL, target: str) -> None:
    """Run a job in a new process, which dies at the point."""
    gateway: Any = spark.sparkContext._gateway
    shared = {
        "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
        "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
    }
    environment = os.environ if point == CUTS_SPARK else os.environ | shared
    address = url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "tests.pipeline.killed", point, job, address, target]
    # Not by a pipe: Java, which ends a little later, holds its other end.
    with tempfile.TemporaryFile("w+") as errors:
        done = subprocess.run(
            command, env=environment, stdout=errors, stderr=errors, timeout=200, check=False
        )
        errors.seek(0)
        assert done.returncode == -signal.SIGKILL, errors.read()[-3000:]

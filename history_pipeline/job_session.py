"""The session of one command or submitted job.

It is quiet, ends with the command, and its errors are for a person to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from history_pipeline.errors import PipelineError
from history_pipeline.extras import check_spark
from history_pipeline.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def job_session(app_name: str) -> Iterator[SparkSession]:
    """A session for the block; one that is open already is used, and stays.

    An error of Spark in it becomes a PipelineError of one line. Raises SparkUnavailableError.
    """
    check_spark()
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no annotations
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    running = SparkContext._active_spark_context is not None  # noqa: SLF001 -- it has no public name
    # Both would tell each error with a page of Java before it is told here.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    session = open_session(app_name)
    session.sparkContext.setLogLevel("FATAL")
    try:
        yield session
    except (PySparkException, Py4JError) as error:
        raise PipelineError(f"Spark: {_reason(error)}") from error
    finally:
        if not running:
            session.stop()


def _reason(error: Exception) -> str:
    """The line of an error that says why: the first, or of a Python worker's traceback the last."""
    lines = [
        line.strip()
        for line in str(getattr(error, "java_exception", error)).splitlines()
        if line.strip()
    ]
    if not lines:
        return type(error).__name__
    if "Traceback" not in lines[0]:
        return lines[0].rstrip(";")
    raised = [
        line
        for line in lines
        if ": " in line and not line.startswith(("File ", "SQLSTATE", "JVM", "at "))
    ]
    return raised[-1] if len(raised) > 1 else lines[-1]

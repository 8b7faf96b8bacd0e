"""The Spark session of every job: one machine by default, or what `spark-submit` chose.

Settings given to `spark-submit` win over the defaults here, and arguments win over both. Spark is
imported only after its requirements have been checked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from history_pipeline.extras import check_spark
from history_pipeline.java import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
"""All cores of this machine, in one process and its Python workers."""

_ARCHIVE_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Else dates become 96-bit numbers without statistics, which nobody can filter by.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Dates before 1582, as only rows by hand have, are kept as they are.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
_LOG_FILE = Path(__file__).parent / "conf" / "log4j2.properties"
_JVM_OPTIONS = " ".join(
    (
        f"-Dlog4j2.configurationFile={_LOG_FILE.as_uri()}",
        "-Duser.timezone=UTC",
        # A third less to start.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        # Of one compiler, Java would keep a fifth of the code that it keeps of two: a session with
        # many queries fills that, and from then on nothing more is compiled.
        "-XX:ReservedCodeCacheSize=240m",
    )
)
_DEFAULTS = {
    "spark.driver.extraJavaOptions": _JVM_OPTIONS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    # History has 28 columns; Spark warns from 25 on.
    "spark.sql.debug.maxToStringFields": "100",
}
_LOCAL_DEFAULTS = {
    "spark.master": LOCAL,
    # Spark's 200 are for clusters: each costs time even if it holds nothing.
    "spark.sql.shuffle.partitions": "32",
}


def open_session(
    app_name: str = "stickybus",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the Spark session of this process, with the format `stickybus` registered.

    A session that is open already is returned. Python workers run this interpreter, unless
    `PYSPARK_PYTHON` names another.

    Args:
        app_name: The name that Spark shows. Default: "stickybus".
        master: The cluster. The default is the one given to `spark-submit`, else `local[*]`.
        settings: Further settings of Spark. They win over those given to `spark-submit`.

    Returns:
        The session. It ends with the process, or by its own `stop`.

    Raises:
        SparkUnavailableError: The extra `spark` or Java is missing; nothing was started.
    """
    check_spark()
    from pyspark.sql import SparkSession

    active: SparkSession | None = SparkSession.getActiveSession()
    if active is not None:
        register(active)
        return active
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    local = not submitted and (master or LOCAL).startswith("local")
    if not submitted:
        check_java()
    # Else workers take the python3 of PATH, which lacks this library's packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        # No other machine has to reach this one, whose own name may not even resolve.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app_name)
    defaults = _DEFAULTS | (_LOCAL_DEFAULTS if local else {})
    defaults = _not_submitted(defaults) if submitted else defaults
    given = ({} if master is None else {"spark.master": master}) | dict(settings or {})
    for key, value in (defaults | given).items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    register(session)
    return session


def own_session(
    session: SparkSession, settings: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """Return a session beside the caller's.

    It has the same settings, except for those that the archive's files and dates need, and those
    given.

    The caller's session stays as it is.
    """
    # Not `newSession`, which has neither the settings nor the format, and refuses to register that.
    copied = session._jsparkSession.cloneSession()  # noqa: SLF001 -- it has no other door
    own = type(session)(session.sparkContext, copied)
    for key, value in (_ARCHIVE_SETTINGS | dict(settings)).items():
        own.conf.set(key, value)
    return own


def register(session: SparkSession) -> None:
    """Make the format `stickybus` known to a session that has not found it by itself.

    Spark looks for it with the Python of its environment, which may not be this one.
    """
    from history_pipeline.source.data_source import FORMAT, StickybusSource

    # Spark warns of a second time.
    state = session._jsparkSession.sessionState()  # noqa: SLF001 -- as for `own_session`
    if not state.dataSourceManager().dataSourceExists(FORMAT):
        session.dataSource.register(StickybusSource)


def _not_submitted(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the `settings` that were not given to `spark-submit`."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001 -- connects to the JVM, which holds what was submitted
    conf = SparkConf()
    return {key: value for key, value in settings.items() if not conf.contains(key)}

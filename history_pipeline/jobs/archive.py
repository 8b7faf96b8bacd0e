"""`stickybus history archive` for a cluster.

    spark-submit …/jobs/archive.py --url URL --to DIR [--before DATE]

Master, memory and packages are what `spark-submit` is given; executors need this library and the
database's driver. Writes what it has done as one JSON document to standard output.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime

import msgspec

from history_pipeline.archiving import archive_history
from history_pipeline.job import job_session


def main(arguments: Sequence[str] | None = None) -> None:
    """Archive once. Raises what `archive_history` does, which ends the job as failed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--url", required=True, help="SQLAlchemy URL, as the executors reach the database"
    )
    parser.add_argument("--to", required=True, help="directory that driver and executors share")
    parser.add_argument("--table", default="bus_events", help="main table")
    parser.add_argument(
        "--before",
        type=datetime.fromisoformat,
        help="ISO 8601 with an offset; default: a minute ago",
    )
    given = parser.parse_args(arguments)
    with job_session("stickybus archive") as spark:
        done = archive_history(spark, given.url, given.to, table=given.table, before=given.before)
    sys.stdout.write(msgspec.json.encode(done).decode() + "\n")


if __name__ == "__main__":
    main()

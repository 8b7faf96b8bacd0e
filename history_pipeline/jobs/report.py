"""`stickybus report` for a cluster.

    spark-submit …/jobs/report.py [--url URL] [--from-archive DIR] --to FILE

Executors read and count; the driver writes the page, and the figures if a directory is given.
Writes the verdict as one JSON document to standard output.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from history_pipeline.audit import audit
from history_pipeline.job import job_session
from history_pipeline.report import write_figures, write_page
from history_pipeline.verdict import verdict


def main(arguments: Sequence[str] | None = None) -> None:
    """Report once. Raises what `audit` does, which ends the job as failed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--url", help="SQLAlchemy URL, as the executors reach the database")
    parser.add_argument("--from-archive", dest="archive", help="directory of an archive")
    parser.add_argument(
        "--table", action="append", help="main table; may be repeated. Default: all"
    )
    parser.add_argument("--to", type=Path, required=True, help="the page, a file of the driver's")
    parser.add_argument(
        "--figures", type=Path, help="directory of the driver's for JSON and Parquet"
    )
    given = parser.parse_args(arguments)
    if given.url is None and given.archive is None:
        parser.error("give --url, --from-archive or both")
    with job_session("stickybus report") as spark:
        found = audit(spark, url=given.url, archive=given.archive, tables=given.table)
    write_page(found, given.to)
    if given.figures is not None:
        write_figures(found, given.figures)
    sys.stdout.write(msgspec.json.encode(verdict(found)).decode() + "\n")


if __name__ == "__main__":
    main()

r"""`stickybus report --exact` for a cluster.

Example:
    spark-submit --master spark://head:7077 "$(python -m history_pipeline.jobs)/report.py" \
        --url postgresql://user@host/shop --from-archive hdfs:///archive --to report.html

Executors read and count; the driver writes the page, and the figures if a directory is given.
Writes the verdict as one JSON document to standard output.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from history_pipeline.audits.audit import audit
from history_pipeline.job_session import job_session
from history_pipeline.jobs.arguments import JobParser, tell
from history_pipeline.period import Period
from history_pipeline.reports.report import write_figures, write_page
from history_pipeline.reports.verdict import verdict


def main(arguments: Sequence[str] | None = None) -> None:
    """Report once. Raises what `audit` does, which ends the job as failed."""
    parser = JobParser(__doc__)
    parser.add_url(required=False)
    parser.add_argument("--from-archive", dest="archive", help="directory of an archive")
    parser.add_argument(
        "--table", action="append", help="main table; may be repeated. Default: all"
    )
    parser.add_date("--since", "count only rows that ended since")
    parser.add_date("--until", "count only rows that ended before")
    parser.add_argument("--to", type=Path, required=True, help="the page, a file of the driver's")
    parser.add_argument(
        "--figures", type=Path, help="directory of the driver's for JSON and Parquet"
    )
    given = parser.parse_args(arguments)
    if not given.url and given.archive is None:
        parser.error("give --url, --from-archive or both")
    with job_session("stickybus report") as spark:
        found = audit(
            spark,
            url=given.url or None,
            archive=given.archive,
            tables=given.table,
            period=Period(given.since, given.until),
        )
    write_page(found, given.to)
    if given.figures is not None:
        write_figures(found, given.figures)
    tell(verdict(found))


if __name__ == "__main__":
    main()

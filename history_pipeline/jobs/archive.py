r"""`stickybus history archive` for a cluster.

Example:
    spark-submit --master spark://head:7077 "$(python -m history_pipeline.jobs)/archive.py" \
        --url postgresql://user@host/shop --to hdfs:///archive --before 2026-01-31T00:00:00Z

Executors read history and write files; the driver publishes and deletes. Writes what it has done
as one JSON document to standard output.
"""

from __future__ import annotations

from collections.abc import Sequence

from history_pipeline.job_session import job_session
from history_pipeline.jobs.arguments import JobParser, scale, tell
from history_pipeline.rows.parts import Part
from history_pipeline.scale import HELP
from history_pipeline.upkeep.archiving import archive_history


def main(arguments: Sequence[str] | None = None) -> None:
    """Archive once. Raises what `archive_history` does, which ends the job as failed."""
    parser = JobParser(__doc__)
    parser.add_url()
    parser.add_target("--to")
    parser.add_date("--before", "only rows that ended before; default: a minute ago")
    parser.add_argument(
        "--without",
        action="append",
        choices=[part.value for part in Part],
        default=[],
        help="part of entries that is not archived; may be repeated",
    )
    parser.add_table()
    parser.add_scale(*HELP)
    given = parser.parse_args(arguments)
    with job_session("stickybus archive") as spark:
        done = archive_history(
            spark,
            given.url,
            given.target,
            table=given.table,
            before=given.before,
            without=given.without,
            scale=scale(given),
        )
    tell(done)


if __name__ == "__main__":
    main()

r"""`stickybus history expire` for a cluster, whose file systems it reaches.

Example:
    spark-submit --master spark://head:7077 "$(python -m history_pipeline.jobs)/expire.py" \
        --url postgresql://user@host/shop --in hdfs:///archive --before 2024-01-01T00:00:00Z

The driver alone reaches the database. Writes what it has done as one JSON document to standard
output.
"""

from __future__ import annotations

from collections.abc import Sequence

from history_pipeline.job_session import job_session
from history_pipeline.jobs.arguments import JobParser, tell
from history_pipeline.upkeep.expiry import expire_archive


def main(arguments: Sequence[str] | None = None) -> None:
    """Expire once. Raises what `expire_archive` does, which ends the job as failed."""
    parser = JobParser(__doc__)
    parser.add_url()
    parser.add_target("--in")
    parser.add_date("--before", "only days that were over before", required=True)
    parser.add_table()
    given = parser.parse_args(arguments)
    with job_session("stickybus expire") as spark:
        done = expire_archive(
            spark, given.target, database=given.url, before=given.before, table=given.table
        )
    tell(done)


if __name__ == "__main__":
    main()

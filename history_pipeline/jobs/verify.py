r"""`stickybus history verify --content` for a cluster.

Example:
    spark-submit --master spark://head:7077 "$(python -m history_pipeline.jobs)/verify.py" \
        --in hdfs:///archive --url postgresql://user@host/shop

Executors read every row of the archive. Writes what it has found as one JSON document to standard
output, and ends as failed if a file is damaged or a manifest missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from history_pipeline.archives.content import verify_content
from history_pipeline.job_session import job_session
from history_pipeline.jobs.arguments import JobParser, tell


def main(arguments: Sequence[str] | None = None) -> None:
    """Verify once. Raises what `verify_content` does, or SystemExit if something is not sound."""
    parser = JobParser(__doc__)
    parser.add_url(required=False)
    parser.add_target("--in")
    parser.add_table()
    given = parser.parse_args(arguments)
    with job_session("stickybus verify") as spark:
        found = verify_content(spark, given.target, table=given.table, database=given.url or None)
    tell(found)
    if found.damaged or found.lost:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

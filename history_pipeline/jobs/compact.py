r"""`stickybus history compact` for a cluster.

Example:
    spark-submit --master spark://head:7077 "$(python -m history_pipeline.jobs)/compact.py" \
        --url postgresql://user@host/shop --in hdfs:///archive

Executors rewrite the files; the driver alone reaches the database. Writes what it has done as one
JSON document to standard output.
"""

from __future__ import annotations

from collections.abc import Sequence

from history_pipeline.job_session import job_session
from history_pipeline.jobs.arguments import JobParser, scale, tell
from history_pipeline.upkeep.compaction import compact_archive


def main(arguments: Sequence[str] | None = None) -> None:
    """Compact once. Raises what `compact_archive` does, which ends the job as failed."""
    parser = JobParser(__doc__)
    parser.add_url()
    parser.add_target("--in")
    parser.add_table()
    parser.add_scale("file_bytes")
    given = parser.parse_args(arguments)
    with job_session("stickybus compact") as spark:
        done = compact_archive(
            spark, given.target, database=given.url, table=given.table, scale=scale(given)
        )
    tell(done)


if __name__ == "__main__":
    main()

r"""`stickybus history replay --yes` for a cluster.

Example:
    spark-submit --master spark://head:7077 "$(python -m history_pipeline.jobs)/replay.py" \
        --url postgresql://user@host/shop --from hdfs:///archive --where "record_id = 4711"

Executors look for the entries, and the driver posts them. Writes what it has done as one JSON
document to standard output.
"""

from __future__ import annotations

from collections.abc import Sequence

from history_pipeline.job_session import job_session
from history_pipeline.jobs.arguments import JobParser, tell
from history_pipeline.upkeep.replay import replay_archive


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay once. Raises what `replay_archive` does, which ends the job as failed."""
    parser = JobParser(__doc__)
    parser.add_url()
    parser.add_target("--from")
    parser.add_argument(
        "--where", required=True, help="condition on the columns of history, in Spark's SQL"
    )
    parser.add_date("--since", "only entries that ended since")
    parser.add_date("--until", "only entries that ended before")
    parser.add_table("main table")
    given = parser.parse_args(arguments)
    with job_session("stickybus replay") as spark:
        done = replay_archive(
            spark,
            given.url,
            given.target,
            where=given.where,
            since=given.since,
            until=given.until,
            table=given.table,
            post=True,
        )
    tell(done)


if __name__ == "__main__":
    main()

"""`stickybus history replay --yes` for a cluster.

    spark-submit …/jobs/replay.py --url URL --from DIR --where CONDITION

Spark looks for the entries on the cluster, and the driver posts them. Writes what it has done as
one JSON document to standard output.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import msgspec

from history_pipeline.job import job_session
from history_pipeline.replay import replay_archive


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay once. Raises what `replay_archive` does, which ends the job as failed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--url", required=True, help="SQLAlchemy URL")
    parser.add_argument("--from", required=True, dest="target", help="directory of the archive")
    parser.add_argument(
        "--where", required=True, help="condition on the columns of history, in Spark's SQL"
    )
    parser.add_argument("--table", default="bus_events", help="main table")
    given = parser.parse_args(arguments)
    with job_session("stickybus replay") as spark:
        done = replay_archive(
            spark, given.url, given.target, where=given.where, table=given.table, post=True
        )
    sys.stdout.write(msgspec.json.encode(done).decode() + "\n")


if __name__ == "__main__":
    main()

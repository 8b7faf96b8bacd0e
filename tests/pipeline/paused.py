"""A process that archives, and stops before it publishes until it is told to go on.

    paused.py URL DIR TABLE

It is a client of the Java that the tests have started. It writes a line when it stops, and goes on
when it reads one.
"""

from __future__ import annotations

import sys

from history_pipeline import archive_history
from history_pipeline.archives.manifest import Manifest
from history_pipeline.upkeep.archiving import Archiver
from tests.pipeline.killed import session_of_gateway


def tell(line: str) -> None:
    """Say it at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(url: str, target: str, table: str) -> None:
    """Archive one table."""
    publish = Archiver.publish

    def paused(self: Archiver, manifest: Manifest) -> Manifest:
        tell("copied")
        sys.stdin.readline()
        return publish(self, manifest)

    Archiver.publish = paused  # type: ignore[method-assign]
    done = archive_history(session_of_gateway(), url, target, table=table)
    tell(str(done.entries))


if __name__ == "__main__":
    main(*sys.argv[1:])

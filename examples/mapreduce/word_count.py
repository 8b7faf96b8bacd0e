"""Count the words of documents, by worker processes of which some may be killed.

Run it: `python -m examples.mapreduce.word_count`. For a hard test, add
`--documents 5000 --mappers 100 --reducers 20 --kills 20`. It runs on a new SQLite file, or with
`--url` on a database, or at the address of a service.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.mapreduce.mapreduce import FailedTaskError, MapReduce
from stickybus import ExponentialRetries, Insert, Worker, WorkQueue, create_schema

WORDS_OF_A_DOCUMENT, VOCABULARY = 60, 1_500
PROGRAM = "examples.mapreduce.word_count"
SLOTS = 10
"""Mappers, or reducers, of one process."""
INSERTED = 500
"""Documents that are inserted at a time."""
RETRIES = ExponentialRetries(0.1, max_retries=4)
"""What fails five times within seconds fails for good."""
SERVICES = ("http://", "https://", "grpc://", "grpcs://")
"""How the addresses of services begin. A service sees to its tables itself."""


def words_of(text: str) -> Iterator[tuple[str, int]]:
    """Each word, once for each time."""
    return ((word, 1) for word in text.split())


def word_count(shards: int) -> MapReduce:
    """The computation."""
    return MapReduce(
        "words",
        map=words_of,
        reduce=lambda _word, counts: sum(counts),
        combine=lambda _word, counts: [sum(counts)],
        shards=shards,
    )


def documents(count: int) -> Iterator[str]:
    """Texts in which some words are frequent, the same at each run."""
    chance = random.Random(41)  # noqa: S311 -- no secret
    for _ in range(count):
        places = (int(VOCABULARY * chance.random() ** 3) for _ in range(WORDS_OF_A_DOCUMENT))
        yield " ".join(f"w{place}" for place in places)


def serve(options: argparse.Namespace) -> None:
    """Map or reduce in this process, until SIGTERM."""
    job = word_count(options.reducers)
    with WorkQueue(options.url, lease_seconds=options.lease) as work:
        handler, queues = (
            (job.map_task, [job.inputs])
            if options.serve == "map"
            else (job.reducer(work), job.shard_queues)
        )
        # A test that kills workers at random also kills some task's workers again and again.
        Worker(
            work, handler, *queues, concurrency=options.slots, max_claims=None, retry=RETRIES
        ).run()


class Processes:
    """Worker processes: those that were killed are started again."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        roles = (("map", options.mappers), ("reduce", options.reducers))
        self._parts = [
            (role, min(SLOTS, slots - first))
            for role, slots in roles
            for first in range(0, slots, SLOTS)
        ]
        self._running = [self._start(*part) for part in self._parts]
        self.killed = 0

    def _start(self, role: str, slots: int) -> subprocess.Popen[bytes]:
        options: dict[str, Any] = {
            "url": self._options.url,
            "lease": self._options.lease,
            "reducers": self._options.reducers,
            "slots": slots,
            "serve": role,
        }
        given = [f"--{name}={value}" for name, value in options.items()]
        return subprocess.Popen([sys.executable, "-m", PROGRAM, *given])  # noqa: S603 -- this one

    def kill_one(self) -> None:
        """Kill a process, and start another one in its place."""
        place = random.randrange(len(self._running))  # noqa: S311 -- no secret
        self._running[place].kill()
        self._running[place].wait()
        self._running[place] = self._start(*self._parts[place])
        self.killed += 1

    def stop(self) -> None:
        """Tell all to stop, and wait for them."""
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait()


@contextmanager
def processes(options: argparse.Namespace) -> Iterator[Processes]:
    """Worker processes that are stopped in the end."""
    started = Processes(options)
    try:
        yield started
    finally:
        started.stop()


def run(options: argparse.Namespace) -> int:
    """Count, and compare with what one process counts; returns the exit code.

    Raises FailedTaskError if a document could not be counted.
    """
    if not options.url.startswith(SERVICES):
        create_schema(options.url)
    job, expected, texts = word_count(options.reducers), Counter[str](), []
    for text in documents(options.documents):
        expected.update(text.split())
        texts.append(Insert(queue=job.inputs, value=text))
    begun = time.monotonic()
    with WorkQueue(options.url) as work:
        job.clear(work)
        for first in range(0, len(texts), INSERTED):
            work.modify(*texts[first : first + INSERTED])
        with processes(options) as workers:
            while not job.is_done(work):
                if time.monotonic() - begun > options.timeout:
                    print("not done in time:", work.queues())
                    return 1
                left = work.queues(job.inputs).get(job.inputs, 0)
                if workers.killed < options.kills * (1 - left / options.documents):
                    workers.kill_one()
                time.sleep(0.1)
        counted = list(job.results(work))
        job.clear(work)
    right = dict(counted) == expected and len(counted) == len(expected)
    print(
        f"{options.documents} documents, {expected.total()} words, {len(expected)} different ones: "
        f"{'right' if right else 'WRONG'}, in {time.monotonic() - begun:.1f} s, "
        f"{workers.killed} processes killed"
    )
    if not right:
        return 1
    print(*(f"{count:6} {word}" for word, count in expected.most_common(3)), sep="\n")
    return 0


def main() -> int:
    """Read the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="database, or service (default: a new SQLite file)")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--mappers", type=int, default=4)
    parser.add_argument("--reducers", type=int, default=4, help="and shards")
    parser.add_argument("--kills", type=int, default=0, help="processes to kill on the way")
    parser.add_argument("--lease", type=float, default=3.0, metavar="SECONDS")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--serve", choices=["map", "reduce"], help=argparse.SUPPRESS)
    parser.add_argument("--slots", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        options.url = options.url or f"sqlite:///{Path(folder, 'words.db')}"
        try:
            return run(options)
        except FailedTaskError as error:
            print(error, file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())

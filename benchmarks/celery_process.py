"""A worker of Celery as a process of its own, which ends with its input: `python -m benchmarks.celery_process URL`.

It takes no task before it is told to, so that its start is no matter of rate.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from celery import Celery

CELERY_TASK = "tick"
CELERY_QUEUE = "backlog"
CELERY_WORKER = "celery@benchmark"
CELERY_CONCURRENCY = 2
CELERY_PREFETCH_MULTIPLIER = 128
_ROOT = Path(__file__).resolve().parents[1]


def celery_application(url: str) -> Celery:
    """One task that does nothing, on the broker at `url`.

    A message leaves the broker when its task has ended; by Celery's default it would leave before.
    """
    # An extra has it.
    from celery import Celery

    app = Celery("benchmark", broker=url, set_as_current=False)
    app.conf.update(
        task_default_queue=CELERY_QUEUE,
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=CELERY_PREFETCH_MULTIPLIER,
    )
    app.task(name=CELERY_TASK)(_tick)
    return app


def _tick(number: int, account: str) -> None:
    del number, account


@contextmanager
def celery_worker(url: str) -> Iterator[None]:
    """The process while the block runs."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.celery_process", url],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=_ROOT,
    )
    try:
        yield
    finally:
        worker.communicate()


def main(url: str) -> None:
    """Run until the input ends, then leave in good order."""

    def leave() -> None:
        # Not by `sys.stdin`: children, forked while it is read, would wait for its lock.
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=leave, daemon=True).start()
    # Containers run as root, and nobody else sends tasks here.
    warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")
    celery_application(url).worker_main(
        [
            *("worker", f"--hostname={CELERY_WORKER}", f"--concurrency={CELERY_CONCURRENCY}"),
            *("--queues=none", "--loglevel=ERROR"),
            # What workers tell each other: there is one.
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

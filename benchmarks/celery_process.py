"""A worker of Celery in its own process, which ends with its input.

    python -m benchmarks.celery_process URL

It takes no task before it is told to, so that its start is no matter of rate. Each of its pool's
processes says at its end how many it has run.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from celery import Celery

CELERY_TASK = "tick"
CELERY_QUEUE = "backlog"
CELERY_UNACKED = "unacked"
"""The key of its transport in Redis for messages that a worker has taken and not acknowledged."""
CELERY_WORKER = "celery@benchmark"
CELERY_CONCURRENCY = 2
CELERY_PREFETCH_MULTIPLIER = 128
END_SECONDS = 30.0
_HANDLED = "handled"
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


_calls = itertools.count()


def _tick(number: int, account: str) -> None:
    del number, account
    next(_calls)


def _report(**_: object) -> None:
    # Celery has put a log in the place of `sys.stdout`.
    os.write(1, f"{_HANDLED} {next(_calls)}\n".encode())


class CeleryWorker:
    """A handle on the process.

    `handled` counts the tasks that came to their end there, once it has ended.
    """

    def __init__(self, url: str) -> None:
        self.handled = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.celery_process", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            start_new_session=True,
        )

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process, by force if it does not end in good order, and read its report."""
        try:
            said, _ = self._process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            said, _ = self._process.communicate()
        self.handled = sum(map(int, re.findall(rf"^{_HANDLED} (\d+)$", said, re.MULTILINE)))


def main(url: str) -> None:
    """Run until the input ends, then leave in good order."""

    def leave() -> None:
        # Not by `sys.stdin`: children, forked while it is read, would wait for its lock.
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    # An extra has it.
    from celery.signals import worker_process_shutdown

    worker_process_shutdown.connect(_report, weak=False)
    threading.Thread(target=leave, daemon=True).start()
    # Containers run as root, and nobody else sends tasks here.
    warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")
    celery_application(url).worker_main(
        [
            *("worker", f"--hostname={CELERY_WORKER}", f"--concurrency={CELERY_CONCURRENCY}"),
            *("--queues=none", "--loglevel=ERROR"),
            # The mutual messages of workers: there is one.
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

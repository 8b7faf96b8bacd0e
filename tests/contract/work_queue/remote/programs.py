"""Programs that call a service."""

from __future__ import annotations

import os
import subprocess
import sys

from sqlalchemy import URL

from tests.contract.work_queue.backends import address_of
from work_queue.work_queue import WorkQueue

PROGRAM = """
import os, signal, sys
from stickybus import WorkQueue

# A shell lets its jobs in the background ignore this signal, and so the tests that it runs there.
signal.signal(signal.SIGINT, signal.default_int_handler)

work = WorkQueue(sys.argv[1], claimant="ann")
print("opened", flush=True)
"""


def run_program(work: WorkQueue, database_url: URL, lines: str) -> subprocess.Popen[str]:
    """Start a process that has opened the same service as `work`, and goes on with these lines."""
    program = [sys.executable, "-c", PROGRAM + lines, address_of(work, database_url)]
    # The tests' own processes don't let gRPC survive a fork, which a program of a user does.
    as_users = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    process = subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=as_users
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "opened\n"
    return process

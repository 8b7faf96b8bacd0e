"""A handler that runs a program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress

from work_queue.modification import Insert
from work_queue.workers.job import Job

LOOK_SECONDS = 0.2
"""How often it is looked whether the job was given up."""
ERROR_BYTES = 2_000
"""Of what a program says about its failure: the end."""


def run_program(
    command: Sequence[str], *, results: str | None = None
) -> Callable[[Job], Insert | None]:
    """Make a handler that runs a program with the value of a task on its standard input.

    A JSON value goes as JSON, bytes as they are. Exit code 0 ends the task; any other is a failure,
    with the end of the standard error as its text. If the task is given up, the program is killed,
    and with it what it has started.

    Args:
        command: The program and its arguments. No shell reads them.
        results: Where the standard output goes, as the text of a new task. Default: nowhere.

    Returns:
        A handler for `Worker`.
    """
    program = tuple(command)

    def handler(job: Job) -> Insert | None:
        value = job.task.value
        given = value if isinstance(value, bytes) else json.dumps(value).encode()
        output = _output(program, given, job)
        return None if results is None else Insert(queue=results, value=output)

    return handler


def _output(program: tuple[str, ...], given: bytes, job: Job) -> str:
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603 -- the caller's own command
        program, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    ) as running:
        unsent: bytes | None = given
        ended = None
        while ended is None:
            try:
                ended = running.communicate(unsent, timeout=LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                unsent = None  # it goes on with what it had
                if job.given_up:
                    _kill(running.pid)
    output, errors = ended
    if running.returncode:
        said = errors[-ERROR_BYTES:].decode(errors="backslashreplace").strip()
        raise RuntimeError(f"{program[0]} ended with exit code {running.returncode}: {said}")
    return output.decode(errors="backslashreplace")


def _kill(leader: int) -> None:
    """Kill a program and its children: they would work on, and keep its output open."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)

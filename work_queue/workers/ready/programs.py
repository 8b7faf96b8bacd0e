"""A handler that runs a program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO

from work_queue.modification import Insert
from work_queue.workers.job import Job
from work_queue.workers.ready import results as ready

LOOK_SECONDS = 0.2
"""How often it is looked whether the job was given up, or the output is too long."""
ERROR_BYTES = 2_000
"""Of what a program says about its failure: the end."""


def run_program(
    command: Sequence[str], *, results: str | None = None
) -> Callable[[Job], Insert | None]:
    """Make a handler that runs a program with the value of a task on its standard input.

    A JSON value goes as JSON, bytes as they are. Exit code 0 ends the task; any other is a failure,
    with the end of the standard error as its text. If the task is given up, the program is killed,
    and with it what it has started. So it is after an output for `results` of more than 10,000,000
    bytes, which gives the task up.

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
        if results is None:
            _run(program, given, job, None)
            return None
        # A file, as its length can be told while the program runs.
        with TemporaryFile() as output:
            _run(program, given, job, output)
            output.seek(0)
            text = output.read().decode(errors="backslashreplace")
        return ready.result(results, text, said=f"{program[0]} wrote", actor="It")

    return handler


def _run(program: tuple[str, ...], given: bytes, job: Job, output: IO[bytes] | None) -> None:
    """Run a program to its end. Raises GiveUp if its output was too long meanwhile."""
    pipe = subprocess.PIPE
    target = subprocess.DEVNULL if output is None else output
    with subprocess.Popen(  # noqa: S603 -- the caller's own command
        program, stdin=pipe, stdout=target, stderr=pipe, start_new_session=True
    ) as running:
        unsent: bytes | None = given
        ended, cut = None, False
        while ended is None:
            try:
                ended = running.communicate(unsent, timeout=LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                unsent = None  # it goes on with what it had
                cut = _is_too_long(output)
                if cut or job.given_up:
                    _kill(running.pid)
    if cut:
        raise ready.too_long(f"{program[0]} wrote", "It")
    if running.returncode:
        said = ended[1][-ERROR_BYTES:].decode(errors="backslashreplace").strip()
        raise RuntimeError(f"{program[0]} ended with exit code {running.returncode}: {said}")


def _is_too_long(output: IO[bytes] | None) -> bool:
    return output is not None and os.fstat(output.fileno()).st_size > ready.LONGEST_BYTES


def _kill(leader: int) -> None:
    """Kill a program and its children: they would work on, and keep its output open."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)

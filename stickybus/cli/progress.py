"""Long changes as people watch them: a bar, and Ctrl-C that ends them in good order."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stickybus.cli.output import errors


@contextmanager
def bar(task: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, of rows done and rows to do."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=errors(), disable=quiet or not sys.stderr.isatty()) as progress:
        number = progress.add_task(task, total=None)
        yield lambda done, total: progress.update(number, completed=done, total=total)


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets; the second Ctrl-C interrupts as ever."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals are the main thread's
        return
    former = signal.getsignal(signal.SIGINT)

    def asked(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, former)
        stop.set()

    signal.signal(signal.SIGINT, asked)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, former)

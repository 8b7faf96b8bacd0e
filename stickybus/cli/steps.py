"""The steps of a job of the pipeline, each with a bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from stickybus.cli.output import errors


class Steps:
    """A progress bar for each step of a job of the pipeline."""

    def __init__(self, shown: Progress, begin: str) -> None:
        self._shown = shown
        self._tasks = {"": shown.add_task(begin, total=None)}

    def __call__(self, step: str, done: int, total: int) -> None:
        """Show how far a step is: parts done, and all parts."""
        if (first := self._tasks.pop("", None)) is not None:
            self._shown.remove_task(first)
        if step not in self._tasks:
            self._tasks[step] = self._shown.add_task(step, total=total)
        self._shown.update(self._tasks[step], completed=done, total=total)


@contextmanager
def steps(begin: str = "starting Spark", *, quiet: bool) -> Iterator[Steps]:
    """Progress bars on standard error, if it is a terminal; until the first step, `begin`."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=errors(), disable=quiet or not sys.stderr.isatty()) as shown:
        yield Steps(shown, begin)

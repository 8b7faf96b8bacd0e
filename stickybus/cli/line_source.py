"""The lines of a file or of standard input, with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from stickybus.cli.output import errors
from stickybus.cli.usage import UsageError


@contextmanager
def opened(file: str, *, quiet: bool) -> Iterator[tuple[Iterator[bytes], Any]]:
    """The lines of a file or of standard input, with a progress bar of the bytes read.

    Also yields a function that shows the number of entries.
    """
    with _source(file) as (source, size):
        columns = (
            SpinnerColumn(),
            TextColumn("{task.fields[entries]:,} entries"),
            *((BarColumn(), TextColumn("{task.percentage:>3.0f}%")) if size else ()),
            TimeElapsedColumn(),
        )
        with Progress(
            *columns, console=errors(), disable=quiet or not sys.stderr.isatty()
        ) as progress:
            task = progress.add_task("post", total=size, entries=0)

            def advancing() -> Iterator[bytes]:
                read = 0
                for line in source:
                    read += len(line)
                    progress.update(task, completed=read)
                    yield line

            yield advancing(), lambda entries: progress.update(task, entries=entries)


@contextmanager
def _source(file: str) -> Iterator[tuple[IO[bytes], int | None]]:
    if file == "-":
        yield sys.stdin.buffer, None
        return
    try:
        source = Path(file).open("rb")  # noqa: SIM115 -- closed below; only its opening is the user's mistake
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror}") from error
    with source:
        yield source, Path(file).stat().st_size or None

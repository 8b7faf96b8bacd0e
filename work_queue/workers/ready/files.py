"""A handler that writes files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from queue_core.errors import ConfigurationError
from queue_core.runtime.synced import sync
from work_queue.modification import Insert
from work_queue.task import Task
from work_queue.workers.job import Job


def write_files(
    folder: str | os.PathLike[str], *, results: str | None = None
) -> Callable[[Job], Insert | None]:
    """Make a handler that writes the value of each task to a file of its own.

    A JSON value is written as JSON, bytes as they are. The file has the id of the task as its name,
    with `.json` or `.bin` after it, and `%2F` where the id has a slash. It is there as a whole, and
    on the disk, before the task ends. A task that runs twice writes it twice.

    Args:
        folder: Where the files go. It has to be there.
        results: Where the path of each file goes, as the value of a new task. Default: nowhere.

    Returns:
        A handler for `Worker`.

    Raises:
        ConfigurationError: The folder is none.
    """
    target = Path(folder)
    if not target.is_dir():
        raise ConfigurationError(
            f"folder={str(target)!r} is no folder. Make it first.", key="folder", value=str(target)
        )

    def handler(job: Job) -> Insert | None:
        path = _write(target, job.task)
        return None if results is None else Insert(queue=results, value=str(path))

    return handler


def _write(folder: Path, task: Task) -> Path:
    value = task.value
    is_bytes = isinstance(value, bytes)
    data = value if is_bytes else json.dumps(value).encode()
    name = f"{quote(task.id, safe='')}.{'bin' if is_bytes else 'json'}"
    # Each run has a version of its own, so that one whose lease was lost spoils no other's file.
    part = folder / f".{name}.{task.version}"
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / name)
    finally:
        part.unlink(missing_ok=True)
    sync(folder)
    return folder / name

"""Locks that processes on one machine take by a file."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


def locked_file(path: str) -> IO[bytes] | None:
    """A file that is locked until it is closed or this process ends; None if another has it.

    It is a file beside the database: to close the database's own lets go of SQLite's locks on it.
    """
    while True:
        file = Path(path).open("ab")  # noqa: SIM115 -- open as long as the lock is held
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if Path(path).stat().st_ino == os.fstat(file.fileno()).st_ino:
                return file
        except BlockingIOError:
            file.close()
            return None
        except FileNotFoundError:
            pass  # its owner has removed it meanwhile
        file.close()

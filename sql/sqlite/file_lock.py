"""Locks that processes on one machine take by a file."""

from __future__ import annotations

import fcntl
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import IO


def locked_file(path: str, program: str) -> IO[bytes] | None:
    """A file that is locked until it is closed or this process ends; None if another has it.

    It is a file beside the database: to close the database's own lets go of SQLite's locks on it.
    It says who has it: this process, which runs `program`.
    """
    while True:
        file = Path(path).open("ab")  # noqa: SIM115 -- open as long as the lock is held
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if Path(path).stat().st_ino == os.fstat(file.fileno()).st_ino:
                file.truncate(0)
                file.write(f"{program} (process {os.getpid()} on {platform.node()})".encode())
                file.flush()
                return file
        except BlockingIOError:
            file.close()
            return None
        except FileNotFoundError:
            pass  # its owner has removed it meanwhile
        file.close()


def release(file: IO[bytes]) -> None:
    """Let a locked file go, and remove it, if it is still there."""
    path = Path(file.name)
    with suppress(FileNotFoundError):  # somebody has removed it by hand
        if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
            # While it is locked: nobody may lock a file that is on its way out.
            path.unlink()
    file.close()


def owner(path: str) -> str | None:
    """The process that has locked a file, as it says; None if it is gone, or says nothing yet."""
    with suppress(FileNotFoundError):
        return Path(path).read_text("utf-8") or None
    return None

"""Temporary folders that end with their owner, together with the servers in them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

UNPRIVILEGED_USER: Final = "nobody"
# Several times the logs of all servers with the rows of the largest test.
_MEMORY_BYTES: Final = 3 * 1024**3

# It reads until the owner's end of the pipe closes, which the kernel does at any death of the
# owner. PostgreSQL's children outlive a killed postmaster for a moment and may still write, hence
# the loop.
_GUARD: Final = """
trap '' INT TERM HUP
cat > /dev/null
pid=$(head -n 1 "$1/postgresql/data/postmaster.pid" 2> /dev/null) && kill -QUIT "$pid" 2> /dev/null
for server in mariadb mysql redis pgbouncer; do
    pid=$(cat "$1/$server/server.pid" 2> /dev/null) && kill -KILL "$pid" 2> /dev/null
done
tries=0
until rm -rf "$1" 2> /dev/null || [ $((tries += 1)) -gt 100 ]; do sleep 0.1; done
"""


@contextlib.contextmanager
def own_folder(parent: Path | None) -> Iterator[Path]:
    """A folder that vanishes with its owner, together with the servers in it."""
    data = Path(tempfile.mkdtemp(prefix="stickybus-", dir=parent))
    if is_root():
        data.chmod(0o711)
    guard = subprocess.Popen(
        ["sh", "-c", _GUARD, "guard", data],
        stdin=subprocess.PIPE,
        # A terminal's Ctrl-C goes to the whole session: the guard outlives it.
        start_new_session=True,
    )
    try:
        yield data
    finally:
        guard.communicate()


def is_root() -> bool:
    """Return whether this process runs as root."""
    return os.geteuid() == 0


def data_folder(*, durable: bool) -> Path | None:
    """Return the folder for data that nobody keeps; None stands for the system's default.

    It is in memory if the data need not be durable and there is plenty of memory.
    """
    memory = Path("/dev/shm")  # noqa: S108 -- mkdtemp makes a private folder in it
    # A database is some 300 files: on tmpfs its creation takes 15 ms, on a journaled disk 200 ms.
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _MEMORY_BYTES
    if roomy and not durable:
        return memory
    # Other users cannot enter root's own temporary folders.
    return Path("/tmp") if is_root() else None  # noqa: S108 -- as above

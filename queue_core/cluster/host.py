"""The machine of a node, and whether the former holder of a node's name is dead there."""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from pathlib import Path

from sql.tables import NAME_LENGTH


def host_identity() -> str:
    """This machine and process space, distinct for containers that share a host name."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with suppress(OSError):
            parts.append(
                str(Path(path).readlink())
                if path.endswith("pid")
                else Path(path).read_text("ascii").strip()
            )
    return "/".join(parts)[:255]


def is_dead_neighbour(holder_identity: str, pid: int) -> bool:
    """Whether the holder was a process of this machine that exists no more."""
    if holder_identity != host_identity() or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return is_zombie(pid)


def is_zombie(pid: int) -> bool:
    """Whether a process is dead and only not yet waited for by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False


def default_name() -> str:
    """A name that no other process has: host, pid and a random part."""
    tail = f"-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    return socket.gethostname()[: NAME_LENGTH - len(tail)] + tail

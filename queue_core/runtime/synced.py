"""What is on the disk, and not only in this machine's memory."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Let a file, or the names in a folder, be on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

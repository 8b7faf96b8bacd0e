"""The user who runs this process."""

from __future__ import annotations

import getpass
import socket

LONGEST_BY = 255
"""Characters of the name of somebody who changes something."""


def somebody() -> str:
    """The user of this process and its machine; the machine alone, if the user has no name."""
    machine = socket.gethostname()
    try:
        return f"{getpass.getuser()}@{machine}"[:LONGEST_BY]
    except (OSError, KeyError, ImportError):
        return machine[:LONGEST_BY]

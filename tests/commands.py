"""One tree of commands for all calls of a command line in a process.

Typer reads the signatures of all commands anew for each call, which takes longer than the rest of
it. A process of a user makes one call.
"""

from __future__ import annotations

from functools import cache

import typer.main


def share() -> None:
    """Let each command line that is called from now on keep its tree."""
    typer.main.get_command = cache(typer.main.get_command)

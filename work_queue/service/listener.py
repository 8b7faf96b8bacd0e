"""A listener of one wire."""

from __future__ import annotations

from typing import Protocol

STOP_SECONDS = 30
"""How long a stop waits for calls that run: so long may a modification wait for locks."""


class Listener(Protocol):
    """A server of one wire, in the loop of the service."""

    async def start(self) -> str:
        """Listen, and return where, such as `http://127.0.0.1:9100`.

        Raises:
            ConfigurationError: The port is taken, or a certificate can't be read.
        """
        ...

    async def stop(self) -> None:
        """Take no more calls, and wait for those that run; waiting claims have been ended."""
        ...

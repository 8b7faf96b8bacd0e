"""A transport carries calls to a service."""

from __future__ import annotations

from typing import Protocol


class UnsentError(Exception):
    """The service can't be reached. The call was not sent."""


class LostError(Exception):
    """The call may have been sent, and there is no answer."""


class StrangeError(Exception):
    """Something else than a work queue's service has answered."""


class Transport(Protocol):
    """Used on one event loop."""

    async def call(self, name: str, request: bytes, timeout_seconds: float) -> bytes:
        """Send a request, and await the answer. If it is cancelled, its connection is closed.

        Raises UnsentError, LostError and StrangeError.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class BlockingTransport(Protocol):
    """Used by any threads, which wait for their answers themselves."""

    def call(self, name: str, request: bytes, timeout_seconds: float) -> bytes:
        """Send a request, and wait for the answer. Raises as `Transport.call`.

        An interruption drops the call, and its answer with it.
        """
        ...

    def close(self) -> None:
        """Close all connections: waits end with LostError, and later calls with UnsentError."""
        ...

"""The base of all parts of the face."""

from __future__ import annotations

from work_queue.backend import Backend


class Part:
    """The backend, and the defaults of calls."""

    def __init__(self, backend: Backend, claimant: str, lease_seconds: float) -> None:
        self._backend = backend
        self._claimant = claimant
        self._lease_seconds = lease_seconds

"""The base of all parts of the face."""

from __future__ import annotations

from queue_core.errors import LifecycleError
from work_queue.backend import Backend


class Part:
    """The backend, until it is closed, and the defaults of calls."""

    def __init__(self, backend: Backend, claimant: str, lease_seconds: float) -> None:
        self._opened = backend
        self._closed = False
        self._claimant = claimant
        self._lease_seconds = lease_seconds

    @property
    def _backend(self) -> Backend:
        if self._closed:
            raise LifecycleError("the work queue was closed. Nothing was done. Make another one.")
        return self._opened

"""What begins anew in a child process of a fork.

A lock that another thread of the parent held stays locked there: that thread is gone.
"""

from __future__ import annotations

import os
from weakref import WeakSet

from queue_core.runtime.lock import Lock


class Anew:
    """One that has a lock, and begins with its first call in this process."""

    def __init__(self) -> None:
        self.forked()
        _known.add(self)

    def forked(self) -> None:
        """This process has not begun it."""
        self._lock = Lock()
        self._has_begun = False


_known = WeakSet[Anew]()


def _forked() -> None:
    for one in _known:
        one.forked()


os.register_at_fork(after_in_child=_forked)

"""Gates of claims and sweeps: threads that keep out of each other's way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from queue_core.runtime.lock import Lock


class Gates:
    """Keeps a sweep from running beside the claim loop or a finish that claims.

    One claim loop and any number of such finishes may run beside each other.
    """

    def __init__(self) -> None:
        self._claiming, self._counting = Lock(), Lock()
        self._along, self._sweeping = set[int](), False

    @contextmanager
    def claiming(self) -> Iterator[bool]:
        """Yield True if this thread may look and claim within the block.

        One thread at a time may.
        """
        try:
            yield self._claiming.acquire(blocking=False)
        finally:
            # More than once if an exception has cut off the end of a block before.
            while self._claiming.is_mine():
                self._claiming.release()

    @contextmanager
    def claiming_along(self) -> Iterator[bool]:
        """Yield True if this thread may claim as part of a finish.

        Any number may; none may while a sweep waits or runs.

        Claimed entries stand in the table before the ledger knows of them, as it does at the end of
        the block.
        """
        thread = threading.get_ident()
        try:
            with self._counting:
                if not self._sweeping:
                    self._along.add(thread)
            yield thread in self._along
        finally:
            self._along.discard(thread)

    @contextmanager
    def sweeping(self) -> Iterator[bool]:
        """Yield True if no other thread claims within the block.

        If one does, no more begin until the next sweep.

        For the thread that may claim.
        """
        quiet = True
        try:
            with self._counting:
                self._sweeping = True
                quiet = not self._along
            yield quiet
        finally:
            self._sweeping = not quiet

"""The lock of objects that callers' threads share, where a signal's handler may raise anywhere."""

from __future__ import annotations

from _thread import RLock


class Lock(RLock):  # type: ignore[misc]  # the type stubs call it final, which it isn't
    """For `with` blocks: released at any exception.

    Reentrant, for a signal's handler that posts may interrupt a post.

    Python 3.14 may handle a signal between the `__enter__` of its own locks and the block (CPython
    issue 148874): if the handler raises, nobody calls `__exit__`, and the next thread waits for
    ever. A function in Python returns into the block at once.

    From Python 3.12 on a `with` or `try` block has a gap where a condition in it goes back to a
    loop's beginning, or a comprehension's: an exception there leaves the block without its
    `__exit__`. So such loops are not in these blocks, but in functions that they call.
    """

    __slots__ = ()

    def is_mine(self) -> bool:
        """Whether this thread has it."""
        return bool(self._is_owned())  # type: ignore[attr-defined]  # conditions ask it, too

    # typeshed gives it the arguments of `acquire`.
    def __enter__(self) -> bool:  # type: ignore[override]
        try:
            return self.acquire()
        except BaseException:
            if self.is_mine():
                self.release()
            raise

"""Bugs that can be planted in the engine, by name: the simulator must catch each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

BUGS: dict[str, Callable[[], AbstractContextManager[object]]] = {}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Inside the block, the engine has this bug (none for an empty name)."""
    if not name:
        yield
        return
    with BUGS[name]():
        yield

"""The register of the bugs that can be planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

Planting = tuple[Any, str, Any]
"""Where, what, and what is put in its place."""
BUGS: dict[str, Callable[[], list[Planting]]] = {}


def bug(plant: Callable[[], list[Planting]]) -> Callable[[], list[Planting]]:
    BUGS[plant.__name__] = plant
    return plant


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Inside the block, the engine has this bug (none for an empty name).

    Databases are to be opened inside, too.
    """
    replaced = [patch.object(*planting) for planting in BUGS[name]()] if name else []
    for one in replaced:
        one.start()
    try:
        yield
    finally:
        for one in reversed(replaced):
            one.stop()


def nothing(*_: Any, **__: Any) -> None:
    """In place of what is forgotten."""

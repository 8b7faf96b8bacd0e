"""Public names of a package, each loaded when it is first read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def loader(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """The `__getattr__` of a package that imports none of its public names itself.

    Args:
        package: The name of the package.
        modules: By module: its names that are public in the package.
    """
    places = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> object:
        if name not in places:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}",
                name=name,
                obj=sys.modules[package],
            )
        found: object = getattr(import_module(places[name]), name)
        # Read again, it is an attribute as any other.
        setattr(sys.modules[package], name, found)
        return found

    return load

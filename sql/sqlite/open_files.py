"""The SQLite files that this process has open, by real path: a fork must not open them once more.

A child would take its parent's locks for its own.
"""

from __future__ import annotations

import os
from collections import Counter

from sql.errors import InheritedFileError

_open: Counter[str] = Counter()
"""The number of times that this process has each file open."""
_inherited = set[str]()
"""Files that its parent had open when it forked."""


def opened(path: str) -> None:
    """Note that a file is open. Raises InheritedFileError."""
    if path in _inherited:
        raise InheritedFileError(
            f"the SQLite file {path} was open in the process that forked this one. Nothing was "
            "started. SQLite can't be opened anew across a fork: start the child with spawn or "
            "exec, or fork before the parent opens the file."
        )
    _open[path] += 1


def closed(path: str) -> None:
    """Note that it was closed, once."""
    _open[path] -= 1


def _forked() -> None:
    _inherited.update(path for path, count in _open.items() if count)
    _open.clear()


os.register_at_fork(after_in_child=_forked)

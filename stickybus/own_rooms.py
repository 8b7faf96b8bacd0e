"""The packages behind `stickybus`: an import of it ends if another module hides one of them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

ROOMS = ("bus", "notifications", "work_queue", "queue_core", "sql")
_HOME = Path(__file__).resolve().parent.parent


def check_rooms() -> None:
    """Raise ShadowedModuleError if a room's name belongs to another module. Imports none."""
    for room in ROOMS:
        path = _place(room)
        if path.parent.parent != _HOME:
            raise _shadowed(room, path)


def _place(room: str) -> Path:
    """The file of a room's module; the folder of a package without one."""
    loaded = sys.modules.get(room)
    if loaded is not None:
        return Path(loaded.__file__ or next(iter(loaded.__path__), "")).resolve()
    spec = find_spec(room)
    if spec is None:
        return Path()
    return Path(spec.origin or next(iter(spec.submodule_search_locations or ()), "")).resolve()


def _shadowed(room: str, path: Path) -> Exception:
    # The error's class is in a room that may be hidden itself, so its file is read by its path.
    errors = run_path(str(_HOME / "queue_core" / "errors.py"), run_name="queue_core.errors")
    error: Exception = errors["ShadowedModuleError"](
        f"stickybus found the module {room!r} at {path}, which is not its own: another "
        "distribution or a folder of your project has the same name and comes first on sys.path. "
        "Rename or move that one.",
        module=room,
        path=str(path),
    )
    return error

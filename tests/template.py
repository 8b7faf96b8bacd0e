"""An SQLite file with all tables, of which tests take copies: a schema takes long to make."""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from stickybus import create_schema


@cache
def template() -> Path:
    """Made when first needed, and gone with the process."""
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "template.db"
    create_schema(f"sqlite:///{path}")
    return path

"""The place of an archive: a table's folder in a directory that the caller names."""

from __future__ import annotations

from pathlib import PurePath

from history_pipeline.rows.kind import check_table
from queue_core.runtime.arguments import not_allowed


def directory(target: str | PurePath, *, key: str = "target") -> str:
    """The name of a directory: a path, or a URL.

    Raises ConfigurationError for what can't be one; `key` names the argument in the message.
    """
    name = str(target) if isinstance(target, PurePath) else target
    if not _is_storable(name):
        allowed = "the path or URL of a directory, without NUL and lone surrogates"
        raise not_allowed(key, target, allowed)
    return name


def folder(target: str | PurePath, table: str) -> str:
    """The folder of a table's archive in a directory.

    Raises ConfigurationError for what can't be a directory, or a table that is archived.
    """
    check_place(target, table)
    return f"{directory(target)}/{table}"


def check_place(target: str | PurePath, table: str) -> None:
    """Raises as `folder`, for calls that start Spark before they look there."""
    directory(target)
    check_table(table)


def _is_storable(name: object) -> bool:
    try:
        return isinstance(name, str) and bool(name.encode()) and "\0" not in name
    except UnicodeEncodeError:
        return False

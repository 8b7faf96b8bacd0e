"""The file that a URL of SQLite names: by a path, or by a URI (`sqlite:///file:orders.db?uri=true`)."""

from __future__ import annotations

import os
from urllib.parse import quote, unquote, urlsplit

from sqlalchemy import URL

_TRUE = {"true", "1", "yes", "on"}


def is_in_memory(url: URL) -> bool:
    """Whether it names no file."""
    path = _path(url)
    return path in {"", ":memory:"} or (_is_uri(url) and url.query.get("mode") == "memory")


def absolute(url: URL) -> URL:
    """The same file, whatever the working directory is from now on."""
    path = os.path.abspath(_path(url))  # noqa: PTH100 -- resolving links is for `real_path`
    return url.set(database=f"file:{quote(path)}" if _is_uri(url) else path)


def real_path(url: URL) -> str:
    """Its path without links: the same for all names of a file."""
    return os.path.realpath(_path(url))


def _path(url: URL) -> str:
    database = url.database or ""
    return unquote(urlsplit(database).path) if _is_uri(url) else database


def _is_uri(url: URL) -> bool:
    return (url.database or "").startswith("file:") and str(
        url.query.get("uri", "")
    ).lower() in _TRUE

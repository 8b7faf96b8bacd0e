"""The error of a value that can't be stored."""

from __future__ import annotations

from queue_core.errors import InvalidPostError
from queue_core.runtime.shown import shown


def refused(queue_name: str, key: str, value: object, allowed: str) -> InvalidPostError:
    """The error of a value that is not allowed; nothing was written."""
    return InvalidPostError(
        f"{queue_name}: {key}={shown(value)} is not allowed. Allowed: {allowed}. Nothing was "
        "written.",
        queue_name=queue_name,
        key=key,
        value=shown(value),
    )

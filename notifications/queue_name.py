"""The name of a queue: `service:queue`."""

from __future__ import annotations

from typing import Any

from queue_core.errors import InvalidPostError, NameTooLongError
from queue_core.model.names import MAX_NAME_LENGTH, name_fault
from queue_core.runtime.shown import shown


def parts_of(full_name: object) -> tuple[str, str]:
    """The service's and the queue's name. Raises InvalidPostError."""
    parts = full_name.split(":") if isinstance(full_name, str) else []
    if len(parts) != 2:  # noqa: PLR2004 -- as the names of both parts
        raise InvalidPostError(
            f"{shown(full_name)} can't be the name of a queue: allowed is service:queue, such as "
            "shop:reminders.",
            key="full_name",
            value=shown(full_name),
        )
    service_name, queue_name = parts
    return service_name, queue_name


def check_part(name: Any) -> None:
    """Raise InvalidPostError or NameTooLongError for a bad name of a service or queue."""
    fault = name_fault(name)
    if fault is None and ":" not in name:
        return
    too_long = isinstance(name, str) and len(name) > MAX_NAME_LENGTH
    error = NameTooLongError if too_long else InvalidPostError
    raise error(
        f"{shown(name)} can't be the name of a service or queue: allowed are "
        f"{fault or 'no colons, which part the two'}.",
        key="queue_name",
        value=name,
    )

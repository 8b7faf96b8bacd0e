"""The name of a queue: `service:queue`."""

from __future__ import annotations

from queue_core.errors import InvalidPostError, NameTooLongError
from queue_core.model.names import MAX_NAME_LENGTH, name_fault
from queue_core.runtime.exact import exact_text
from queue_core.runtime.shown import shown


def parts_of(full_name: object) -> tuple[str, str]:
    """The service's and the queue's name. Raises InvalidPostError."""
    parts = (exact_text(full_name) or "").split(":")
    if len(parts) != 2:  # noqa: PLR2004 -- as the names of both parts
        raise InvalidPostError(
            f"{shown(full_name)} can't be the name of a queue: allowed is service:queue, such as "
            "shop:reminders.",
            key="full_name",
            value=shown(full_name),
        )
    service_name, queue_name = parts
    return service_name, queue_name


def checked_part(name: object) -> str:
    """The name of a service or queue. Raises InvalidPostError or NameTooLongError for a bad one."""
    fault, text = name_fault(name), exact_text(name) or ""
    if fault is None and ":" not in text:
        return text
    too_long = len(text) > MAX_NAME_LENGTH
    error = NameTooLongError if too_long else InvalidPostError
    raise error(
        f"{shown(name)} can't be the name of a service or queue: allowed are "
        f"{fault or 'no colons, which part the two'}.",
        key="queue_name",
        value=name,
    )

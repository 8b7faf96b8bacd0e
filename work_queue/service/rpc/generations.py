"""The differences of the two generations of callers: values, and texts that must be UUIDs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from queue_core.errors import InvalidRequestError
from queue_core.runtime.shown import shown
from work_queue.service.marked import marked, unmarked
from work_queue.service.rpc.descriptors import API, LEGACY, Package
from work_queue.service.rpc.values import read_value, write_value
from work_queue.task import NOBODY, Task

NIL = str(UUID(int=0))
"""What callers that read and write UUIDs take for no claimant, and for no id."""


class Generation(ABC):
    """One generation, and the package that it calls."""

    package: Package
    has_docs: bool

    @abstractmethod
    def read_value(self, data: Any) -> Any:
        """The value of a `TaskData`."""

    @abstractmethod
    def write_value(self, value: Any, task: Any) -> None:
        """Write the value of a `Task`."""

    @abstractmethod
    def name(self, text: str) -> str:
        """An id or a claimant that a caller gives. Raises InvalidRequestError."""

    @abstractmethod
    def can_name(self, task: Task) -> bool:
        """Whether a caller can name a task: whether `name` returns its id."""

    @abstractmethod
    def claimant(self, name: str) -> str:
        """A claimant as a caller reads it."""


class Current(Generation):
    """Values are JSON, and names any text."""

    package, has_docs = API, True

    def read_value(self, data: Any) -> Any:
        """See `Generation`."""
        return unmarked(read_value(data.value))

    def write_value(self, value: Any, task: Any) -> None:
        """See `Generation`."""
        write_value(marked(value), task.value)

    def name(self, text: str) -> str:
        """See `Generation`."""
        return text

    def can_name(self, task: Task) -> bool:
        """See `Generation`."""
        del task
        return True

    def claimant(self, name: str) -> str:
        """See `Generation`."""
        return name


class Legacy(Generation):
    """Values are bytes, as which JSON is written too, and names are UUIDs."""

    package, has_docs = LEGACY, False

    def read_value(self, data: Any) -> Any:
        """See `Generation`."""
        value: bytes = data.value
        return value

    def write_value(self, value: Any, task: Any) -> None:
        """See `Generation`."""
        if isinstance(value, bytes):
            task.value = value
        elif value is not None:
            task.value = msgspec.json.encode(value)

    def name(self, text: str) -> str:
        """See `Generation`. The texts of one UUID are one name, and the nil UUID is none."""
        try:
            return "" if text in {"", NIL} else str(UUID(text))
        except ValueError:
            raise InvalidRequestError(
                f"{shown(text)} is no UUID: ids and claimants of this service are UUIDs. Nothing "
                "was written.",
                key="id",
                value=text,
            ) from None

    def can_name(self, task: Task) -> bool:
        """See `Generation`. Newer callers give tasks any ids."""
        try:
            return str(UUID(task.id)) == task.id
        except ValueError:
            return False

    def claimant(self, name: str) -> str:
        """See `Generation`. A claimant of a newer caller, which is no UUID, is shown as one."""
        if name == NOBODY:
            return NIL
        try:
            return str(UUID(name))
        except ValueError:
            return str(uuid5(NAMESPACE_URL, name))

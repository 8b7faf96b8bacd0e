"""The parts of an entry, or of a task, that an archive may leave out.

No figure, search by key, erasure or proof needs them. All else stays: keys and headers, too, by
which entries of a customer are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from queue_core.errors import ConfigurationError
from queue_core.model.states import State
from queue_core.runtime.arguments import not_allowed
from queue_core.runtime.shown import shown

if TYPE_CHECKING:
    from queue_core.model.entry import Entry


class Part(StrEnum):
    """What an archive may leave out."""

    PAYLOAD = "payload"
    """`event_json` and `event_bytes`; of a task its value."""
    ERRORS = "errors"
    """All of `last_error`, or of a task's `err`, but the name of the error's type."""


def parts_of(without: Iterable[str]) -> list[Part]:
    """Parts by name, each once. Raises ConfigurationError for one that can't be left out."""
    if isinstance(without, str) or not isinstance(without, Iterable):
        raise not_allowed("without", without, f"a collection of {' and '.join(Part)}")
    given = list(without)
    for name in given:
        if name not in list(Part):
            raise ConfigurationError(
                f"without={shown(name)} is not allowed: an archive may leave out "
                f"{' and '.join(Part)} alone. Nothing was read or written.",
                key="without",
                value=name,
            )
    return [part for part in Part if part in given]


def not_archived(entry: Entry, without: Sequence[Part]) -> tuple[Part, ...]:
    """The parts that an archived entry lacks, of those that its file is without.

    A compaction merges files of several runs, so that other entries of the file may have them.
    """
    has = {
        Part.PAYLOAD: entry.event_json is not None or entry.event_bytes is not None,
        # Only what has failed has an error. Its message follows the type after a space.
        Part.ERRORS: (
            entry.processing_state is not State.FAILED
            or len((entry.last_error or "").split(maxsplit=1)) > 1
        ),
    }
    return tuple(part for part in without if not has[part])

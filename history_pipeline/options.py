"""The options of the format `stickybus`, read from the texts that Spark hands over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from history_pipeline.errors import SourceOptionError


@dataclass(frozen=True)
class ReadOptions:
    """What to read, and how much of it in one task."""

    url: str = field(repr=False)
    table: str = "bus_events_history"
    first_id: int | None = None
    last_id: int | None = None
    ids_per_partition: int = 100_000
    """Width of the range of ids that one task reads, on one connection."""

    @classmethod
    def read(cls, options: Mapping[str, str]) -> ReadOptions:
        """Raises SourceOptionError if `url` is missing, or for a number that is none."""
        return cls(
            url=required(options, "url"),
            table=options.get("table", cls.table),
            first_id=whole(options, "first_id"),
            last_id=whole(options, "last_id"),
            ids_per_partition=whole(options, "ids_per_partition", smallest=1) or cls.ids_per_partition,
        )


def required(options: Mapping[str, str], key: str) -> str:
    """The text of an option. Raises SourceOptionError if it is missing or empty."""
    text = options.get(key)
    if not text:
        raise SourceOptionError(
            f"the option {key} of the format stickybus is missing. Nothing was read or written.", key=key
        )
    return text


def whole(options: Mapping[str, str], key: str, *, smallest: int | None = None) -> int | None:
    """The whole number of an option, None if it is not given. Raises SourceOptionError for anything else."""
    text = options.get(key)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or (smallest is not None and value < smallest):
        least = "" if smallest is None else f" of {smallest} or more"
        raise SourceOptionError(
            f"the option {key}={text!r} of the format stickybus is no whole number{least}. Nothing was read or written.",
            key=key,
        )
    return value

"""The sizes of the pieces in which history is archived, and how many are at work at once."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from queue_core.runtime.arguments import not_allowed, of_kind
from queue_core.runtime.deprecation import deprecated

_LARGEST = 2**63 - 1
"""The largest number that Spark takes."""


@dataclass(frozen=True)
class Scale:
    """Sizes of the work. Defaults suit one machine; more cores need larger runs."""

    run_rows: int = field(default=1_000_000, metadata={"help": "Most entries of one run"})
    """It is the most that one transaction deletes, and that is copied again after a kill."""
    ids_per_partition: int = field(default=100_000, metadata={"help": "Ids that one task reads"})
    """A task reads its range on one connection, page by page. Gaps between ids do not count."""
    max_partitions: int = field(
        default=2_000, metadata={"help": "Most tasks, and so most connections, that read a run"}
    )
    """A task reads more ids if there would be more tasks."""
    file_bytes: int = field(
        default=128 * 1024 * 1024, metadata={"help": "Size that a file should have, in bytes"}
    )
    """A day has one file at least. An archive measures what Spark shuffles, which is larger."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST:
                raise not_allowed(name, value, "a 64-bit integer of 1 or more")


DEFAULT_SCALE = Scale()
HELP: dict[str, str] = {one.name: one.metadata["help"] for one in fields(Scale)}
"""What each size means, as command line and jobs say it."""


def scale_of(scale: Scale, **old: int | None) -> Scale:
    """A scale with the sizes that a caller gave by their former keywords, each with a warning.

    Raises ConfigurationError.
    """
    of_kind(scale, Scale, key="scale")
    given = {name: value for name, value in old.items() if value is not None}
    for name in given:
        deprecated(f"{name}=", f"scale=Scale({name}=...)")
    return replace(scale, **given)

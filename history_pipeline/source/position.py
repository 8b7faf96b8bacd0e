"""The position of a stream over history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class Position:
    """All rows that ended by `finished` were handed over, but for those of entries in `open`.

    Those ran when the position was taken, so that their rows may still come with an earlier date:
    outcomes are kept while a database is out of reach. `late` are ids that were open before, and
    whose rows are handed over with this position, whatever their date.
    """

    finished: datetime
    open: tuple[int, ...] = ()
    late: tuple[int, ...] = ()

    @classmethod
    def start(cls, after: datetime | None = None) -> Position:
        """Return the position before all rows, or after the rows that ended by a date."""
        return cls(after or datetime.min.replace(tzinfo=UTC))

    @classmethod
    def read(cls, offset: dict[str, Any]) -> Position:
        """A position from what `offset` wrote into a checkpoint."""
        finished = datetime.fromisoformat(offset["finished"])
        return cls(finished, tuple(offset["open"]), tuple(offset["late"]))

    def offset(self) -> dict[str, Any]:
        """The position as JSON takes it."""
        return {
            "finished": self.finished.isoformat(),
            "open": list(self.open),
            "late": list(self.late),
        }

"""The findings of an examination of a database, each with its cure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The weight of a finding, the worst first."""

    DANGER = "danger"
    """Data, or delivery, is at risk."""
    SLOW = "slow"
    """It costs speed now, or will as the tables grow."""
    NOTE = "note"
    """Nothing is wrong yet."""
    UNCHECKED = "unchecked"
    """A check could not be made, and why."""

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True)
class Finding:
    """One thing that slows or endangers a database.

    Attributes:
        check: The name of the check, and of its section in `PAGE`.
        severity: DANGER, SLOW, NOTE or UNCHECKED.
        subject: A table, session, node or setting.
        what: A sentence that describes it.
        cure: The SQL, setting or command that helps; an empty text if there is none.
    """

    check: str
    severity: Severity
    subject: str
    what: str
    cure: str

    @property
    def page(self) -> str:
        """The page of the documentation that explains it."""
        return f"{PAGE}#{self.check}"


PAGE = "docs/how-to/doctor.md"
_WHOLE = 9.95
"""From here on a number has two digits before its point."""
_UNITS = (
    (86_400.0, "d"),
    (3_600.0, "h"),
    (60.0, "min"),
    (1.0, "s"),
    (0.001, "ms"),
    (0.000_001, "µs"),
)


def unchecked(check: str, subject: str, why: str, cure: str = "") -> Finding:
    """A check that could not be made."""
    return Finding(check, Severity.UNCHECKED, subject, why, cure)


def counted(entries: int) -> str:
    """A number of entries in words."""
    return "1 entry" if entries == 1 else f"{entries:,} entries"


def lasting(seconds: float) -> str:
    """A length of time to two or three digits, such as `1.2 h` or `35 min`."""
    size = abs(seconds)
    # What would be rounded to 1,000 of a unit, or to 60 of it, is one of the next.
    least, unit = next(
        ((least, unit) for least, unit in _UNITS if size >= least * 0.9995), _UNITS[-1]
    )
    number = seconds / least
    return (
        f"{number:,.0f} {unit}"
        if abs(number) >= _WHOLE or number == round(number)
        else f"{number:.1f} {unit}"
    )

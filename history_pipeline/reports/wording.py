"""Numbers and names as people read them."""

from __future__ import annotations

from sql.doctor.finding import lasting

NOTHING = "-"

_LONGEST = 30
"""Characters of a name in a plot."""
_WHOLE = 9.95
"""From here on a number has two digits before its point."""
_NEARLY_ALL = 99.0
"""Per cent from which a share has one more digit, so that 99.96 is not shown as all."""


def duration(seconds: float | None) -> str:
    """A length of time to two or three digits, such as `1.2 ms` or `35 min`; a dash for None."""
    return NOTHING if seconds is None else lasting(seconds)


def percentage(part: int, whole: int) -> str:
    """A share such as `2.5 %`; never 0 % of some, nor 100 % of less than all.

    A dash for a share of nothing.
    """
    if not whole:
        return NOTHING
    share = min(max(100 * part / whole, 0.01 if part else 0), 100 if part == whole else 99.99)
    digits = 2 if share < _WHOLE else 3 if share < _NEARLY_ALL else 4
    return f"{share:.{digits}g} %"


def shortened(name: str) -> str:
    """A name on one line, its middle left out if it is longer than `_LONGEST`."""
    line = " ".join(name.split())
    if len(line) <= _LONGEST:
        return line
    kept = _LONGEST - 1
    return f"{line[: kept // 2]}…{line[-(kept - kept // 2) :]}"

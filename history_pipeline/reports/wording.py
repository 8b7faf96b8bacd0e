"""Numbers and names as people read them."""

from __future__ import annotations

NOTHING = "-"

_LONGEST = 30
"""Characters of a name in a plot."""
_WHOLE = 9.95
"""From here on a number has two digits before its point."""
_NEARLY_ALL = 99.0
"""Per cent from which a share has one more digit, so that 99.96 is not shown as all."""
_UNITS = (
    (86_400.0, "d"),
    (3_600.0, "h"),
    (60.0, "min"),
    (1.0, "s"),
    (0.001, "ms"),
    (0.000_001, "µs"),
)


def duration(seconds: float | None) -> str:
    """A length of time to two or three digits, such as `1.2 ms` or `35 min`; a dash for None."""
    if seconds is None:
        return NOTHING
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

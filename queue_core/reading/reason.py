"""A reason why an entry is not running."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec

Fact: TypeAlias = str | int | float | datetime | None


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One cause.

    Attributes:
        code: Names the kind of cause, for programs: `paused`, `not-due`, and so on.
        text: A sentence.
        facts: The facts of the sentence, by name. Dates are aware, in UTC.
    """

    code: str
    text: str
    facts: dict[str, Fact] = {}

"""Settings of a server that cost data or time: rules in a table, and the breaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sql.doctor.finding import Finding, Severity


@dataclass(frozen=True)
class Rule:
    """A setting: its wrong values, their consequence, and the SQL that changes it."""

    setting: str
    wrong: Callable[[str], bool]
    severity: Severity
    leads_to: str
    cure: str


def broken(check: str, rules: Sequence[Rule], values: Mapping[str, str]) -> Iterator[Finding]:
    """A finding for each rule that a value breaks. A setting that the server lacks breaks none."""
    for rule in rules:
        value = values.get(rule.setting)
        if value is not None and rule.wrong(value):
            yield Finding(
                check,
                rule.severity,
                rule.setting,
                f"{rule.setting} = {value}: {rule.leads_to}.",
                rule.cure,
            )

"""Answers of the doctor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Told:
    """The answer of the command."""

    code: int
    findings: list[dict[str, str]]

    def of(self, check: str) -> list[dict[str, str]]:
        return [finding for finding in self.findings if finding["check"] == check]

    def one(self, check: str) -> dict[str, str]:
        (finding,) = self.of(check)
        return finding


Doctor = Callable[..., Told]

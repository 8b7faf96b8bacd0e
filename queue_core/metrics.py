"""Metrics, by prometheus-client; observed per batch where per entry would cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from queue_core.outcome import Outcome


class Metrics:
    """The metrics of one bus or service."""

    def posted(self, queue_name: str, count: int) -> None: ...

    def claimed(self, count: int) -> None: ...

    def finished(self, batch: Sequence[Outcome], lost: set[int]) -> None: ...

    def reaped(self, count: int) -> None: ...

    def lease_lost(self) -> None: ...

    @contextmanager
    def statement(self, name: str) -> Iterator[None]:
        del name
        yield

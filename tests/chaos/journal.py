"""The journals of a run: each process writes one JSON line an event into its file.

A line is one appending write: a process that is killed loses none that it had written. Times are
seconds by the engine's own monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from queue_core.runtime.clock import SystemClock

monotonic = SystemClock().monotonic


class _Line(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    at: float


class Posting(_Line, frozen=True, tag=True, kw_only=True):
    """Entries are about to be posted, in one transaction.

    `undone` of them will be rolled back to a savepoint.
    """

    node: str
    keys: list[int]
    undone: list[int]
    kind: str


class Answered(_Line, frozen=True, tag=True, kw_only=True):
    """How that transaction ended: `committed` is None if nobody knows.

    `sticky`: for this process alone.
    """

    keys: list[int]
    committed: bool | None
    sticky: bool
    not_added: list[int] = []
    """Keys whose idempotency key another entry had."""


class Started(_Line, frozen=True, tag=True, kw_only=True):
    """A handler was called, under the lease `epoch`."""

    node: str
    pid: int
    epoch: int
    key: int
    record_id: int
    origin_id: int | None
    claim_count: int
    error_count: int


class Ended(_Line, frozen=True, tag=True, kw_only=True):
    """It is about to return, or to raise."""

    record_id: int
    claim_count: int
    failed: bool


class Beaten(_Line, frozen=True, tag=True, kw_only=True):
    """A beat, sent at `at`, has renewed the lease `epoch`; so many entries were in flight."""

    node: str
    pid: int
    epoch: int
    in_flight: int


class Stopping(_Line, frozen=True, tag=True, kw_only=True):
    """The node begins to stop in good order."""

    node: str


class Left(_Line, frozen=True, tag=True, kw_only=True):
    """The bus has stopped, though its node lives on; it began to at `since`."""

    node: str
    since: float


class Sampled(_Line, frozen=True, tag=True, kw_only=True):
    """What a node uses and how long its claims took, since its start."""

    node: str
    pid: int
    memory_bytes: int
    threads: int
    claims: float
    claim_seconds: float


Line: TypeAlias = Posting | Answered | Started | Ended | Beaten | Stopping | Left | Sampled


class Journal:
    """One process's file below `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}-{os.getpid()}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, line: Line) -> None:
        """Append a line; safe from several threads."""
        os.write(self._file, msgspec.json.encode(line) + b"\n")


def read(folder: Path) -> Iterator[list[Line]]:
    """Each process's lines, in the order in which they were written."""
    decoder = msgspec.json.Decoder(Line)
    for path in sorted(folder.glob("*.jsonl")):
        yield [decoder.decode(line) for line in path.read_bytes().splitlines()]

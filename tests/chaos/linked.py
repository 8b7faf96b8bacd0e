"""Posts with keys and order keys, and limited buses: what is asked for, and whether it was kept.

A handler whose node had lost its lease meanwhile is not counted: its entry was free for others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from tests.chaos.journal import Answered, Line, Posting
from tests.checker import Invariant, LeaseEnded, Ran, Violation

KEYS = 40
CONCURRENCY = 8
HEARD_SECONDS = 2.0
"""After this time all nodes that live have heard of a limit."""


class Link(StrEnum):
    """What the entries of a run have in common."""

    NONE = ""
    KEY = "key"
    ORDER = "order"
    LIMIT = "limit"


def options(link: str, number: int) -> dict[str, Any]:
    """The options of the post of this number."""
    match link:
        case Link.KEY:
            return {"key": f"k{number % KEYS}"}
        case Link.ORDER:
            return {"order_key": f"o{number % KEYS}", "order_failure": "skip"}
    return {}


class _Span(NamedTuple):
    since: float
    until: float
    number: int


def violations(
    link: str,
    files: Sequence[Sequence[Line]],
    runs: Iterable[Ran],
    leases: Sequence[LeaseEnded],
    limited_from: float,
) -> Iterator[Violation]:
    """What contradicts the promise of this link."""
    free = {(one.node, one.incarnation): one.at for one in sorted(leases, key=_latest_first)}
    runs = list(runs)
    spans = sorted(
        _Span(
            run.started,
            min(
                inf if run.ended is None else run.ended, free.get((run.node, run.incarnation), inf)
            ),
            run.key,
        )
        for run in runs
    )
    done = dict[int, float]()
    for run in runs:
        if run.ended is not None and not run.failed:
            done[run.key] = min(run.ended, done.get(run.key, inf))
    match link:
        case Link.LIMIT:
            yield from _beyond([one for one in spans if one.since > limited_from])
        case Link.ORDER:
            yield from _beside(spans)
            yield from _out_of_order(files, spans, done)
        case Link.KEY:
            yield from _twice(files, done)


def _latest_first(end: LeaseEnded) -> float:
    return -end.at


def _violation(invariant: Invariant, told: str) -> Violation:
    return Violation(invariant=invariant, record_ids=(), explanation=told)


def _beyond(spans: Sequence[_Span]) -> Iterator[Violation]:
    """More than the limit at once."""
    running = list[_Span]()
    for span in spans:
        running = [one for one in running if one.until > span.since] + [span]
        if len(running) > CONCURRENCY:
            yield _violation(Invariant.BOUNDED, f"{len(running)} ran at once, beside {span.number}")


def _beside(spans: Iterable[_Span]) -> Iterator[Violation]:
    """Two of an order key at once."""
    by_key = defaultdict[int, list[_Span]](list)
    for span in spans:
        by_key[span.number % KEYS].append(span)
    for of_key in by_key.values():
        for one, other in pairwise(of_key):
            if one.until > other.since and one.number != other.number:
                told = f"{other.number} began beside {one.number} of its order key"
                yield _violation(Invariant.ONE_A_KEY, told)


def _out_of_order(
    files: Sequence[Sequence[Line]], spans: Sequence[_Span], done: Mapping[int, float]
) -> Iterator[Violation]:
    """An entry of an order key that began before one that its process had posted earlier."""
    began = dict[int, float]()
    for span in spans:
        began.setdefault(span.number, span.since)
    for lines in files:
        last = dict[int, int]()
        for line in lines:
            if isinstance(line, Answered) and line.committed:
                for number in line.keys:
                    before = last.get(number % KEYS)
                    last[number % KEYS] = number
                    if before is not None and began.get(number, inf) < done.get(before, inf):
                        told = f"{number} began before {before} of its order key had ended"
                        yield _violation(Invariant.IN_TURN, told)


def _twice(files: Sequence[Sequence[Line]], done: Mapping[int, float]) -> Iterator[Violation]:
    """An entry that was added while another one with its idempotency key lived."""
    added = defaultdict[int, list[tuple[float, float, int]]](list)
    for lines in files:
        began = {line.keys[0]: line.at for line in lines if isinstance(line, Posting)}
        for line in lines:
            if isinstance(line, Answered) and line.committed:
                for number in set(line.keys) - set(line.not_added):
                    added[number % KEYS].append((line.at, began[line.keys[0]], number))
    for of_key in added.values():
        for (before_at, _, before), (at, began_at, number) in pairwise(sorted(of_key)):
            if before_at < began_at and at < done.get(before, inf):
                told = f"{number} was added while {before} lived, which has its key"
                yield _violation(Invariant.ONE_A_KEY, told)

"""From what a run has left behind to a result: the judge's verdict, and what was measured."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import inf

from stickybus import State
from tests.chaos import journal, linked
from tests.chaos.journal import Answered, Beaten, Ended, Left, Line, Posting, Started, Stopping
from tests.chaos.load import Kind
from tests.chaos.member import Settings
from tests.chaos.stage import Death, Fault, Stage
from tests.checker import (
    Evidence,
    Invariant,
    LeaseEnded,
    Limits,
    Posted,
    Ran,
    Standing,
    Violation,
    duplicate_runs,
    judge,
)

FULL_RATE = 0.8
"""Share of the rate before the first fault that counts as full."""
_WINDOW_SECONDS, _STEP_SECONDS = 1.0, 0.1


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run.

    Times are seconds since its start; `recoveries`: from each return to the full rate, None if
    never.
    """

    scenario: str
    database: str
    mode: str
    seed: int
    seconds: float
    violations: Sequence[Violation]
    problems: list[str]
    committed: int
    rolled_back: int
    unknown: int
    runs: int
    duplicates: int
    reaped: int
    deaths: int
    faults: Sequence[Fault]
    reruns: Sequence[float]
    recoveries: Sequence[float | None]
    rate_before: float
    memory_peak_bytes: int
    handled_at: Sequence[float]

    @property
    def good(self) -> bool:
        """Whether every invariant held and the run came to its end."""
        return not self.violations and not self.problems

    def count(self, invariant: Invariant) -> int:
        """Violations of one invariant."""
        return sum(violation.invariant is invariant for violation in self.violations)


def result_of(stage: Stage, settings: Settings, *, scenario: str, seed: int) -> Result:
    """Judge and measure a run that is at rest."""
    files = list(journal.read(stage.folder))
    kinds = {
        key: line.kind
        for lines in files
        for line in lines
        if isinstance(line, Posting)
        for key in line.keys
    }
    posted = [post for lines in files for post in _posted(lines)]
    pairs = [pair for lines in files for pair in _runs(lines)]
    leases = list(_leases_ended(files, stage.deaths, settings.lease_seconds))
    main, history = stage.rows()
    history += stage.archived
    evidence = Evidence(
        posted=posted,
        ran=[ran for _, ran in pairs],
        main=main,
        history=history,
        leases_ended=[one for one in leases if isinstance(one, LeaseEnded)],
        stops=[
            (line.node, line.since, line.at)
            for lines in files
            for line in lines
            if isinstance(line, Left)
        ],
        most_in_flight=_most_in_flight(files),
        limits=Limits(
            max_failure_retries=settings.config().max_failure_retries,
            max_redispatches=settings.config().max_redispatches,
            in_flight=settings.queue_capacity,
        ),
    )
    handled = sorted(ran.ended for _, ran in pairs if ran.ended is not None)
    first_fault = min(
        (fault.at for fault in stage.faults), default=handled[-1] if handled else stage.began
    )
    before = [at for at in handled if at < first_fault]
    rate = len(before) / (first_fault - before[0]) if before and first_fault > before[0] else 0.0
    return Result(
        scenario=scenario,
        database=stage.target.name,
        mode=settings.mode.value,
        seed=seed,
        seconds=journal.monotonic() - stage.began,
        violations=[
            *judge(evidence),
            *(one for one in leases if isinstance(one, Violation)),
            *_misjudged(history, kinds),
            *linked.violations(
                settings.link,
                files,
                evidence.ran,
                evidence.leases_ended,
                first_fault + linked.HEARD_SECONDS,
            ),
        ],
        problems=list(stage.problems),
        committed=sum(post.committed is True for post in posted),
        rolled_back=sum(post.committed is False for post in posted),
        unknown=sum(post.committed is None for post in posted),
        runs=len(pairs),
        duplicates=duplicate_runs(evidence),
        reaped=sum(row.state is State.REAPED for row in history),
        deaths=len(stage.deaths),
        faults=[replace(fault, at=fault.at - stage.began) for fault in stage.faults],
        reruns=sorted(_reruns(pairs, stage.deaths, kinds)),
        recoveries=[_recovery(handled, fault.at, rate) for fault in stage.faults if fault.returned],
        rate_before=rate,
        memory_peak_bytes=stage.memory_peak_bytes,
        handled_at=[at - stage.began for at in handled],
    )


# -- evidence ------------------------------------------------------------------------------------


def _posted(lines: Sequence[Line]) -> Iterator[Posted]:
    answers = {line.keys[0]: line for line in lines if isinstance(line, Answered)}
    for line in lines:
        if isinstance(line, Posting):
            # Without an answer its process died: before the COMMIT, during it, or just after.
            answer = answers.get(line.keys[0])
            committed = answer.committed if answer else None
            sticky = answer.sticky if answer else False
            for key in line.keys:
                if answer and key in answer.not_added:
                    continue
                yield Posted(
                    key=key, node=line.node, at=line.at, sticky=sticky, committed=committed
                )
            for key in line.undone:
                yield Posted(key=key, node=line.node, at=line.at, sticky=sticky, committed=False)


def _runs(lines: Sequence[Line]) -> Iterator[tuple[int, Ran]]:
    """The runs of one process, each with its pid."""
    ends = {(line.record_id, line.claim_count): line for line in lines if isinstance(line, Ended)}
    for line in lines:
        if isinstance(line, Started):
            end = ends.get((line.record_id, line.claim_count))
            yield (
                line.pid,
                Ran(
                    key=line.key,
                    record_id=line.record_id,
                    claim_count=line.claim_count,
                    node=line.node,
                    incarnation=line.epoch,
                    started=line.at,
                    ended=end.at if end else None,
                    failed=end.failed if end else False,
                    error_count=line.error_count,
                ),
            )


def _leases_ended(
    files: Sequence[Sequence[Line]], deaths: Sequence[Death], lease_seconds: float
) -> Iterator[LeaseEnded | Violation]:
    """From when on the entries of each epoch were free for others.

    An epoch that went on after an outage never ended.

    A process that lives and had to register anew was declared dead: it must have been silent for a
    lease while another node's beats succeeded, or that was a mistake.
    """
    died = {(death.node, death.pid): death.at for death in deaths}
    steady = [
        (lines, since, until) for lines in files for since, until in _steady(lines, lease_seconds)
    ]
    for lines in files:
        beats = [line for line in lines if isinstance(line, Beaten)]
        epochs = [list(of_epoch) for _, of_epoch in groupby(beats, key=lambda beat: beat.epoch)]
        for before, after in pairwise(epochs):
            last = before[-1]
            watched = [
                max(since, last.at) + lease_seconds
                for other, since, until in steady
                if other is not lines
                and max(since, last.at) + lease_seconds <= min(until, after[0].at)
            ]
            if not watched:
                yield Violation(
                    invariant=Invariant.ONE_RUNNER,
                    record_ids=(),
                    explanation=(
                        f"{last.node} (lease {last.epoch}) was declared dead, though no other node "
                        "could have watched it for a whole lease"
                    ),
                )
            at = min(watched, default=last.at + lease_seconds)
            yield LeaseEnded(node=last.node, incarnation=last.epoch, at=at)
        stopped = [line.at for line in lines if isinstance(line, Stopping)]
        for last in beats[-1:]:
            gone = [
                *stopped,
                *([died[last.node, last.pid]] if (last.node, last.pid) in died else []),
            ]
            if gone:
                at = min([last.at + lease_seconds, *gone])
                yield LeaseEnded(node=last.node, incarnation=last.epoch, at=at)


def _steady(lines: Sequence[Line], lease_seconds: float) -> Iterator[tuple[float, float]]:
    """When a process's beats succeeded without a gap of half a lease.

    A last beat counts for as long.
    """
    beats = [line.at for line in lines if isinstance(line, Beaten)]
    since = beats[0] if beats else 0.0
    for before, after in pairwise([*beats, inf]):
        if after - before > lease_seconds / 2:
            yield since, before + lease_seconds / 2
            since = after


def _most_in_flight(files: Sequence[Sequence[Line]]) -> dict[str, int]:
    most = defaultdict[str, int](int)
    for lines in files:
        for line in lines:
            if isinstance(line, Beaten):
                most[line.node] = max(most[line.node], line.in_flight)
    return most


def _misjudged(history: Sequence[Standing], kinds: Mapping[int, str]) -> Iterator[Violation]:
    """Innocents that ended FAILED, and poison that did not."""
    for row in history:
        poison = kinds.get(row.key) == Kind.POISON
        if row.state is not State.REAPED and (row.state is State.FAILED) is not poison:
            yield Violation(
                invariant=Invariant.BOUNDED if poison else Invariant.NO_LOSS,
                record_ids=(row.record_id,),
                explanation=(
                    f"key {row.key} ({kinds.get(row.key)}) ended {row.state.value}: "
                    f"{row.last_error}"
                ),
            )


# -- measures ------------------------------------------------------------------------------------


def _reruns(
    pairs: Sequence[tuple[int, Ran]], deaths: Sequence[Death], kinds: Mapping[int, str]
) -> Iterator[float]:
    """From each death to the next run of what it had cut off."""
    died = {death.pid: death.at for death in deaths}
    by_key = defaultdict[int, list[tuple[int, Ran]]](list)
    for pid, ran in sorted(pairs, key=lambda pair: pair[1].started):
        by_key[ran.key].append((pid, ran))
    for key, of_key in by_key.items():
        for place, (pid, ran) in enumerate(of_key):
            if ran.ended is None and pid in died and kinds.get(key) != Kind.POISON:
                later = (
                    other.started for other_pid, other in of_key[place + 1 :] if other_pid != pid
                )
                after = next(later, None)
                if after is not None:
                    yield after - died[pid]


def _recovery(handled: Sequence[float], returned: float, rate_before: float) -> float | None:
    """Seconds from the return until a window with the full rate begins."""
    at, last = returned, handled[-1] if handled else returned
    while at + _WINDOW_SECONDS <= last:
        count = bisect_left(handled, at + _WINDOW_SECONDS) - bisect_left(handled, at)
        if count >= FULL_RATE * rate_before * _WINDOW_SECONDS:
            return at - returned
        at += _STEP_SECONDS
    return None

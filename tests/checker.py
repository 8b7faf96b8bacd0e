"""The judge of simulator and chaos runs.

It holds posts, runs and records against the seven invariants.

Pure: it reads evidence and touches no database. A chain of entries is known by the key that its
poster gave it (`search_key1`), since a row that was rolled back has no id that is its own. To be
asked when faults have stopped and the system had time to come to rest. That an entry ran more than
once is no violation (`duplicate_runs` counts it).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from math import inf
from typing import Any

from queue_core.model.states import State

ENDS = frozenset({State.PROCESSED, State.FAILED, State.REMOVED})
"""States that end a chain; REAPED hands it on to a copy."""


class Invariant(StrEnum):
    """What every run of the system keeps, as the guarantees are written."""

    NO_LOSS = "no loss"
    NO_PHANTOM = "no phantom"
    RECORDED_ONCE = "at least once, committed once"
    ONE_RUNNER = "one runner"
    STICKY = "sticky"
    NEVER_SILENT = "never silent"
    BOUNDED = "bounded"
    ONE_A_KEY = "one a key"
    IN_TURN = "in turn"


@dataclass(frozen=True, kw_only=True)
class Posted:
    """One post. No other has its `key`, which stands in `search_key1`.

    `committed`: None if nobody knows, because the answer to the COMMIT was lost. `sticky`: it was
    posted for its `node` alone, a live one. `at`: when the post began, in the common time of all
    evidence (seconds).
    """

    key: int
    node: str
    at: float
    sticky: bool
    committed: bool | None


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One call of a handler.

    `incarnation` names the lease under which it began (epoch, or process).

    `ended`: None if the handler was not seen to return. `failed`: it raised. `error_count`: the
    count that it was told at its start. `alone_until`: the end of its `max_run_seconds`, if it has
    any, after which another run may begin beside it.
    """

    key: int
    record_id: int
    claim_count: int
    node: str
    incarnation: int
    started: float
    ended: float | None
    failed: bool = False
    error_count: int = 0
    alone_until: float = inf


@dataclass(frozen=True, kw_only=True)
class LeaseEnded:
    """From `at` on others may run what this incarnation ran.

    It was declared dead, taken over or stopped, or its process is gone.
    """

    node: str
    incarnation: int
    at: float


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A row of a main or a history table.

    History that was truncated counts, from a copy made before.
    """

    key: int
    record_id: int
    origin_id: int | None
    replay_of: int | None
    state: State
    processing_owner: str | None
    claim_count: int
    error_count: int
    redispatch_count: int
    crash_count: int
    last_error: str | None = None

    @property
    def chain(self) -> int:
        """The first record id of its chain."""
        return self.origin_id or self.record_id

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Standing:
        """From a row of the database, as a mapping of its columns."""
        names = (
            *(
                "record_id",
                "origin_id",
                "replay_of",
                "processing_owner",
                "claim_count",
                "error_count",
            ),
            *("redispatch_count", "crash_count"),
        )
        return cls(
            key=row["search_key1"],
            state=State(row["processing_state"]),
            last_error=row.get("last_error"),
            **{name: row[name] for name in names},
        )


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the settings of the nodes allow; None is not judged.

    Each of `subscribers` has retries of its own.
    """

    max_failure_retries: int | None = None
    subscribers: int = 1
    max_redispatches: int | None = None
    in_flight: int | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that was recorded of one run of the system.

    `most_in_flight`: the most entries that each node held at once.
    """

    posted: Sequence[Posted]
    ran: Sequence[Ran] = ()
    main: Sequence[Standing] = ()
    history: Sequence[Standing] = ()
    leases_ended: Sequence[LeaseEnded] = ()
    stops: Sequence[tuple[str, float, float]] = ()
    """(node, from, until): its bus stopped then, though its lease went on.

    What it had not started is for others.
    """
    most_in_flight: Mapping[str, int] = field(default_factory=dict)
    failures_only: bool = False
    """Whether an entry that was handled may leave no row."""
    limits: Limits = Limits()


@dataclass(frozen=True, kw_only=True)
class Violation:
    """An invariant that did not hold, for which entries, and how it shows."""

    invariant: Invariant
    record_ids: tuple[int, ...]
    explanation: str

    def __str__(self) -> str:
        ids = ", ".join(map(str, self.record_ids))
        return f"{self.invariant.value}: {self.explanation}" + (f" (entries {ids})" if ids else "")


def judge(evidence: Evidence) -> list[Violation]:
    """Everything that contradicts an invariant, grouped by invariant; empty if all hold."""
    posted = {post.key: post for post in evidence.posted}
    runs, chains = defaultdict[int, list[Ran]](list), defaultdict[int, list[Standing]](list)
    for run in sorted(evidence.ran, key=lambda run: run.started):
        runs[run.key].append(run)
    for row in evidence.history:
        chains[row.chain].append(row)
    for row in evidence.main:
        chains[row.chain].append(row)
    chain_of = {row.record_id: chain for chain, rows in chains.items() for row in rows}
    ends = {
        (end.node, end.incarnation): end.at
        for end in sorted(evidence.leases_ended, key=_latest_first)
    }
    violations = [
        *_lost(evidence, chains, runs),
        *_phantoms(evidence, posted),
        *_recorded_twice(evidence, chains),
        *(found for of_key in runs.values() for found in _at_once(of_key, chain_of, ends)),
        *_not_sticky(evidence, posted),
        *_silent(evidence),
        *_unbounded(evidence, runs, chain_of),
    ]
    order = list(Invariant)
    return sorted(violations, key=lambda violation: order.index(violation.invariant))


def duplicate_runs(evidence: Evidence) -> int:
    """How many runs repeated one that had succeeded: allowed, and worth counting."""
    succeeded = Counter(run.key for run in evidence.ran if run.ended is not None and not run.failed)
    return sum(count - 1 for count in succeeded.values())


def _latest_first(end: LeaseEnded) -> float:
    return -end.at


def _ids(rows: Iterable[Standing]) -> tuple[int, ...]:
    return tuple(sorted({row.record_id for row in rows}))


# -- loss and phantoms ---------------------------------------------------------------------------


def _lost(
    evidence: Evidence, chains: Mapping[int, list[Standing]], runs: Mapping[int, list[Ran]]
) -> Iterator[Violation]:
    present = {row.key for rows in chains.values() for row in rows}
    handled = {run.key for run in evidence.ran if evidence.failures_only and _succeeded(run)}
    for post in evidence.posted:
        if post.committed and post.key not in present | handled:
            ids = tuple(sorted({run.record_id for run in runs.get(post.key, ())}))
            yield Violation(
                invariant=Invariant.NO_LOSS,
                record_ids=ids,
                explanation=f"key {post.key} was committed by {post.node} and stands in no table",
            )
    live = {row.record_id for row in evidence.main}
    for rows in chains.values():
        if rows[0].key not in handled and not any(
            row.state in ENDS or row.record_id in live for row in rows
        ):
            yield Violation(
                invariant=Invariant.NO_LOSS,
                record_ids=_ids(rows),
                explanation=f"the chain of key {rows[0].key} breaks off: all its rows are REAPED",
            )
    for row in evidence.history:
        if row.state is State.PROCESSED and not any(
            _succeeded(run) for run in runs.get(row.key, ())
        ):
            yield Violation(
                invariant=Invariant.NO_LOSS,
                record_ids=(row.record_id,),
                explanation=f"key {row.key} is PROCESSED, but no run of it succeeded",
            )


def _succeeded(run: Ran) -> bool:
    return run.ended is not None and not run.failed


def _phantoms(evidence: Evidence, posted: Mapping[int, Posted]) -> Iterator[Violation]:
    for what, found in (
        ("ran", evidence.ran),
        ("stands in the main table", evidence.main),
        ("stands in history", evidence.history),
    ):
        for one in found:
            post = posted.get(one.key)
            if post is None or post.committed is False:
                why = "was never posted" if post is None else f"was rolled back by {post.node}"
                yield Violation(
                    invariant=Invariant.NO_PHANTOM,
                    record_ids=(one.record_id,),
                    explanation=f"key {one.key} {why}, but {what}",
                )


# -- recorded once -------------------------------------------------------------------------------


def _recorded_twice(
    evidence: Evidence, chains: Mapping[int, list[Standing]]
) -> Iterator[Violation]:
    live = {row.record_id for row in evidence.main}
    for chain, rows in chains.items():
        ended = [row for row in rows if row.state in ENDS]
        standing = [row for row in rows if row.record_id in live and row.state not in ENDS]
        again = [
            record_id
            for record_id, count in Counter(row.record_id for row in rows).items()
            if count > 1
        ]
        twins = [
            count for count in Counter(row.redispatch_count for row in rows).values() if count > 1
        ]
        told = ""
        if again:
            told = f"entry {again[0]} stands in two rows"
        elif len(ended) > 1:
            told = f"{len(ended)} terminal rows: {', '.join(row.state.value for row in ended)}"
        elif ended and standing:
            told = f"it ended {ended[0].state.value}, and goes on as entry {standing[0].record_id}"
        elif twins:
            told = "a reaped entry has two copies"
        if told:
            yield Violation(
                invariant=Invariant.RECORDED_ONCE,
                record_ids=_ids(rows),
                explanation=f"chain {chain}: {told}",
            )
    # A replay is a chain of its own; without one, a key has one chain.
    first = Counter(
        (rows[0].key, chain)
        for chain, rows in chains.items()
        if not any(row.replay_of is not None for row in rows)
    )
    for key, count in Counter(key for key, _ in first).items():
        if count > 1:
            ids = tuple(sorted(chain for other, chain in first if other == key))
            yield Violation(
                invariant=Invariant.RECORDED_ONCE,
                record_ids=ids,
                explanation=f"key {key}, posted once, has {count} chains",
            )


# -- who runs ------------------------------------------------------------------------------------


def _at_once(
    runs: Sequence[Ran], chain_of: Mapping[int, int], ends: Mapping[tuple[str, int], float]
) -> Iterator[Violation]:
    """Runs (by start, of one key) that began while another had the right to be alone.

    A replay may overlap its parent.
    """
    by_chain = defaultdict[int, list[Ran]](list)
    for run in runs:
        by_chain[chain_of.get(run.record_id, run.record_id)].append(run)
    for of_chain in by_chain.values():
        alone, alone_until = None, -inf
        for run in of_chain:
            if alone is not None and run.started < alone_until:
                yield Violation(
                    invariant=Invariant.ONE_RUNNER,
                    record_ids=tuple(sorted({alone.record_id, run.record_id})),
                    explanation=(
                        f"key {run.key}: {run.node} (lease {run.incarnation}) started it at "
                        f"{run.started:.6f}, while {alone.node} (lease {alone.incarnation}) ran "
                        f"it from {alone.started:.6f} on, and was alive"
                    ),
                )
            ended = inf if run.ended is None else run.ended
            until = min(ended, run.alone_until, ends.get((run.node, run.incarnation), inf))
            if until > alone_until:
                alone, alone_until = run, until


def _not_sticky(evidence: Evidence, posted: Mapping[int, Posted]) -> Iterator[Violation]:
    ends = defaultdict[str, list[float]](list)
    for end in evidence.leases_ended:
        ends[end.node].append(end.at)
    replays = {
        row.record_id for row in (*evidence.main, *evidence.history) if row.replay_of is not None
    }
    for run in evidence.ran:
        post = posted.get(run.key)
        if post is None or not post.sticky or run.node == post.node or run.record_id in replays:
            continue
        stopped = any(
            node == post.node and post.at <= until and since <= run.started
            for node, since, until in evidence.stops
        )
        if not stopped and not any(post.at <= at <= run.started for at in ends[post.node]):
            yield Violation(
                invariant=Invariant.STICKY,
                record_ids=(run.record_id,),
                explanation=f"key {run.key} of {post.node}, which was alive, ran on {run.node}",
            )


# -- silence and bounds --------------------------------------------------------------------------


def _silent(evidence: Evidence) -> Iterator[Violation]:
    for row in evidence.main:
        yield Violation(
            invariant=Invariant.NEVER_SILENT,
            record_ids=(row.record_id,),
            explanation=(
                f"key {row.key} never ended: {row.state.value}, owner {row.processing_owner}"
            ),
        )
    for row in evidence.history:
        if row.state is State.FAILED and not (row.last_error or "").strip():
            yield Violation(
                invariant=Invariant.NEVER_SILENT,
                record_ids=(row.record_id,),
                explanation=f"key {row.key} is FAILED without a reason",
            )


def _unbounded(
    evidence: Evidence, runs: Mapping[int, list[Ran]], chain_of: Mapping[int, int]
) -> Iterator[Violation]:
    limits = evidence.limits
    most_failures = None
    if limits.max_failure_retries is not None:
        most_failures = (limits.max_failure_retries + 1) * limits.subscribers
    for row in (*evidence.history, *evidence.main):
        for what, count, most in (
            ("failed", row.error_count, most_failures),
            # The crash that makes a suspect does not count.
            (
                "killed its process",
                row.crash_count,
                limits.max_redispatches and limits.max_redispatches + 1,
            ),
        ):
            if most is not None and count > most:
                yield Violation(
                    invariant=Invariant.BOUNDED,
                    record_ids=(row.record_id,),
                    explanation=f"key {row.key} {what} {count} times; {most} are allowed",
                )
    for of_key in runs.values():
        for before, after in pairwise(of_key):
            same = chain_of.get(before.record_id) == chain_of.get(after.record_id)
            if same and after.error_count < before.error_count:
                yield Violation(
                    invariant=Invariant.BOUNDED,
                    record_ids=tuple(sorted({before.record_id, after.record_id})),
                    explanation=(
                        f"key {after.key}: its failures fell from {before.error_count} to "
                        f"{after.error_count}"
                    ),
                )
    for node, most in evidence.most_in_flight.items():
        if limits.in_flight is not None and most > limits.in_flight:
            yield Violation(
                invariant=Invariant.BOUNDED,
                record_ids=(),
                explanation=f"{node} held {most} entries at once; the limit is {limits.in_flight}",
            )

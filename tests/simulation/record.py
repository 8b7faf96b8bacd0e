"""The record of a simulation: what was posted, ran and ended, and what breaks an invariant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

import queue_core.claiming.budget
from queue_core.running.subscriber import EntryContext
from tests.checker import (
    ENDS,
    Evidence,
    Invariant,
    LeaseEnded,
    Limits,
    Posted,
    Ran,
    Standing,
    Violation,
    judge,
)
from tests.simulation.database import TABLES, Databases
from tests.simulation.process import Process
from tests.simulation.settings import Settings
from tests.simulation.threads import Scheduler

_APART = 1_000_000_000
"""The ids of the bus are smaller."""


@dataclass
class _Post:
    node: str
    at: float
    sticky: bool
    committed: bool | None = False


@dataclass
class Run:
    """A call of a handler."""

    key: int
    record_id: int
    node: str
    incarnation: int
    started: float
    error_count: int
    claim_count: int
    opened: str
    """The date that its outcome will bear."""
    ended: float | None = None
    failed: bool = False


@dataclass(frozen=True)
class Result:
    """What came of a simulation."""

    violations: list[Violation]
    trace: list[str]
    entries: int
    runs: int


class Record:
    """Of one simulation. Times are simulated seconds."""

    def __init__(self, databases: Databases, settings: Settings, scheduler: Scheduler) -> None:
        self._databases = databases
        self._settings = settings
        self._scheduler = scheduler
        self._posted = dict[int, _Post]()
        self._runs = list[Run]()
        self._ended = list[LeaseEnded]()
        self._leaving = dict[str, float]()
        self._left = list[tuple[str, float, float]]()
        """What a node gives back when it leaves is for others before its lease ends."""
        self._most = dict[str, int]()
        self._ledger = dict[tuple[Any, ...], Mapping[str, Any]]()
        self._found = list[Violation]()

    def posting(
        self, process: Process, keys: Iterable[int], *, sticky: bool, known: bool = True
    ) -> None:
        """Entries of these keys are about to be posted.

        `known`: a commit tells that they are there.
        """
        for key in keys:
            committed = False if known else None
            self._posted[key] = _Post(process.node_name, self._scheduler.time, sticky, committed)

    def settle(self, key: int, *, committed: bool) -> None:
        """Note whether an entry of this key has been posted."""
        self._posted[key].committed = committed

    def not_added(self, key: int) -> None:
        """Note that another entry has had its idempotency key."""
        del self._posted[key]

    def found(self, violation: Violation) -> None:
        """Note what contradicts an invariant."""
        self._found.append(violation)

    def has_ended(self, table: str, key: int) -> bool:
        """Whether an entry of this key has ever ended."""
        return any(
            row["search_key1"] == key and row["processing_state"] in ENDS
            for row in self._history(table)
        ) or self._left_no_row(table, key)

    def _left_no_row(self, table: str, key: int) -> bool:
        """Whether an entry was handled, and history keeps only failures."""
        return (
            self._settings.history == "failures"
            and any(
                run.key == key and run.ended is not None and not run.failed for run in self._runs
            )
            and not self._databases.rows(f"SELECT 1 FROM {table} WHERE search_key1 = {key}")
        )

    def began(self, process: Process, key: int, context: EntryContext) -> Run:
        """A handler has begun."""
        claim_count, opened = process.handling()
        run = Run(
            key,
            _apart(context.record_id, context.queue_name != "bus"),
            process.node_name,
            process.last_node.epoch if process.last_node is not None else 0,
            self._scheduler.time,
            context.error_count,
            claim_count,
            _text(opened),
        )
        self._runs.append(run)
        return run

    def committed(self, keys: Iterable[int]) -> None:
        """The transaction that has posted these keys has committed."""
        for key in keys:
            self._posted[key].committed = True

    def knows(self, keys: Iterable[int]) -> bool:
        """Whether one of these keys was posted before."""
        return any(key in self._posted for key in keys)

    def holds(self, name: str, entries: int) -> None:
        """The bus or service `name` holds this number of entries now."""
        self._most[name] = max(self._most.get(name, 0), entries)

    def leaves(self, node: str) -> None:
        """A node begins to leave."""
        self._leaving.setdefault(node, self._scheduler.time)

    def lease_ended(self, node: str, epoch: int) -> None:
        """A lease of a node is over."""
        self._ended.append(LeaseEnded(node=node, incarnation=epoch, at=self._scheduler.time))
        if node in self._leaving:
            self._left.append((node, self._leaving.pop(node), self._scheduler.time))

    def keep_history(self, rows: list[Mapping[str, Any]]) -> None:
        """These rows of history are about to be deleted."""
        self._ledger |= {
            (row["table"], row["record_id"], row["finished_date"]): row for row in rows
        }

    def result(self, trace: list[str]) -> Result:
        """Judge what was recorded."""
        evidence = self._evidence()
        violations = [*self._found, *judge(evidence), *self._effects(evidence), *self._late()]
        return Result(
            violations,
            trace,
            len(evidence.posted),
            len(evidence.ran),
        )

    def _evidence(self) -> Evidence:
        main, history = list[Standing](), list[Standing]()
        for number, table in enumerate(TABLES):
            main += [
                _standing(row, number) for row in self._databases.rows(f"SELECT * FROM {table}")
            ]
            history += [_standing(row, number) for row in self._history(table)]
        return Evidence(
            posted=[
                Posted(
                    key=key,
                    node=post.node,
                    at=post.at,
                    sticky=post.sticky,
                    committed=post.committed,
                )
                for key, post in self._posted.items()
            ],
            ran=[
                Ran(
                    key=run.key,
                    record_id=run.record_id,
                    claim_count=run.claim_count,
                    node=run.node,
                    incarnation=run.incarnation,
                    started=run.started,
                    ended=run.ended,
                    failed=run.failed,
                    error_count=run.error_count,
                    alone_until=run.started + (self._settings.max_run_seconds or inf),
                )
                for run in self._runs
            ],
            main=main,
            history=history,
            leases_ended=self._ended,
            stops=[*self._left, *((name, since, inf) for name, since in self._leaving.items())],
            most_in_flight=self._most,
            failures_only=self._settings.history == "failures",
            limits=Limits(
                max_failure_retries=self._settings.max_failure_retries,
                subscribers=self._settings.subscribers,
                max_redispatches=self._settings.max_redispatches,
                # Claims fill the pool beside; of callers' transactions several may be under way at
                # once.
                in_flight=self._settings.queue_capacity
                + self._settings.handler_threads
                + queue_core.claiming.budget.BATCHES * self._settings.max_entries_claimed,
            ),
        )

    def _history(self, table: str) -> Iterable[Mapping[str, Any]]:
        """All that ever stood in a history table."""
        rows = {key: row for key, row in self._ledger.items() if key[0] == table}
        for row in self._databases.rows(f"SELECT * FROM {table}_history"):
            rows[table, row["record_id"], row["finished_date"]] = row
        return rows.values()

    def _late(self) -> Iterator[Violation]:
        """A late finish changes nothing.

        The record comes from a run of the last claim.
        """
        claims = {(run.record_id, run.opened): run.claim_count for run in self._runs}
        for number, table in enumerate(TABLES):
            for row in self._history(table):
                record_id = _apart(row["record_id"], number)
                claim_count = claims.get(
                    (record_id, _text(row["started_date"])), row["claim_count"]
                )
                if claim_count != row["claim_count"]:
                    yield Violation(
                        invariant=Invariant.RECORDED_ONCE,
                        record_ids=(record_id,),
                        explanation=(
                            f"the outcome of claim {claim_count} of key {row['search_key1']} was "
                            f"recorded when claim {row['claim_count']} ran it"
                        ),
                    )

    def _effects(self, evidence: Evidence) -> Iterator[Violation]:
        """An exactly-once handler's writes stand once for a processed entry, and never twice."""
        if not self._settings.exactly_once:
            return
        counts = Counter(
            (effect["number"], effect["subscriber"])
            for effect in self._databases.rows("SELECT * FROM simulated_effects")
        )
        chains = [row for row in evidence.history if row.state in {"PROCESSED", "FAILED"}]
        for row in chains:
            ends = sum(other.key == row.key for other in chains)
            of_bus = row.record_id < _APART
            for subscriber in range(self._settings.exactly_once if of_bus else 1):
                found = counts[row.key, subscriber]
                if found > ends or (row.state == "PROCESSED" and not found):
                    yield Violation(
                        invariant=Invariant.RECORDED_ONCE,
                        record_ids=(row.record_id,),
                        explanation=(
                            f"the writes of exactly-once handler {subscriber} for key {row.key} "
                            f"stand {found} times"
                        ),
                    )


def _apart(record_id: int, table: int) -> int:
    """Ids are a table's own; the checker's are the system's."""
    return record_id + table * _APART


def _standing(row: Mapping[str, Any], table: int) -> Standing:
    names = ("record_id", "origin_id", "replay_of")
    return Standing.of({**row, **{name: row[name] and _apart(row[name], table) for name in names}})


def _text(date: Any) -> str:
    return date.isoformat(" ", "microseconds")[:26] if isinstance(date, datetime) else str(date)

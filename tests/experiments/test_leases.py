"""ADR 0003: a node is dead when a steady witness saw it silent for a lease.

The first half is a model in which one second is one turn; the second half runs the two statements
that must meet on real databases: the beat and the verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import pytest
from sqlalchemy import Connection, Engine, text

from tests import requirements as needs
from tests.experiments.sessions import BOUND_SECONDS, session_id, wait_until_blocked

LEASE_SECONDS = 15
BEAT_SECONDS = 3
REAP_SECONDS = 1  # looks more often than the product: every order of looks and beats occurs
OUTAGE_SECONDS = 4 * LEASE_SECONDS
GAP_SECONDS = 2 * BEAT_SECONDS


@dataclass
class Row:
    """A node's row: the beat counter, and the database's time of the last beat."""

    beat: int = 0
    beat_date: int = 0


@dataclass
class Database:
    """Shared rows and a clock of its own, which a fail-over may move."""

    rows: dict[str, Row] = field(default_factory=dict)
    clock_offset: int = 0
    reachable: bool = True


class Rule(Protocol):
    """Judges `other` at a reaper's turn; `seconds` is the reaper's own monotonic clock."""

    def beaten(self, seconds: int, *, succeeded: bool) -> None: ...
    def is_dead(self, other: Row, seconds: int, database: Database) -> bool: ...


class DatabaseClock:
    """Rejected: the last beat is older than a lease by the database's clock."""

    def beaten(self, seconds: int, *, succeeded: bool) -> None:
        pass

    def is_dead(self, other: Row, seconds: int, database: Database) -> bool:
        return seconds + database.clock_offset - other.beat_date > LEASE_SECONDS


class SteadyWitness:
    """Chosen: this reaper saw one beat for a lease, while its own beats succeeded without a gap."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] | None = None  # beat, and since when it has been seen
        self._own_beat: int | None = None

    def beaten(self, seconds: int, *, succeeded: bool) -> None:
        if not succeeded or self._gap(seconds):
            self._seen = None
        self._own_beat = seconds if succeeded else None

    def is_dead(self, other: Row, seconds: int, database: Database) -> bool:
        if self._gap(seconds):
            return False
        if self._seen is None or self._seen[0] != other.beat:
            self._seen = (other.beat, seconds)
        return seconds - self._seen[1] >= LEASE_SECONDS

    def _gap(self, seconds: int) -> bool:
        return self._own_beat is None or seconds - self._own_beat > GAP_SECONDS


@dataclass
class World:
    """Node `b` judges node `a`.

    Each second the reaper goes first, the worst order after an outage.
    """

    rule: Rule
    phase: int  # of the beats of `a` against those of `b`
    database: Database = field(default_factory=lambda: Database({"a": Row(), "b": Row()}))
    second: int = 0
    a_runs: bool = True
    b_runs: bool = True
    declared_dead_at: int | None = None

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.second += 1
            if self.b_runs:
                self._beat_of_b()
                self._reap()
            if self.a_runs and self.second % BEAT_SECONDS == self.phase:
                self._write_beat("a")

    def _beat_of_b(self) -> None:
        if self.second % BEAT_SECONDS == 0:
            self._write_beat("b")
            self.rule.beaten(self.second, succeeded=self.database.reachable)

    def _reap(self) -> None:
        due = (
            self.second % REAP_SECONDS == 0
            and self.database.reachable
            and self.declared_dead_at is None
        )
        if due and self.rule.is_dead(self.database.rows["a"], self.second, self.database):
            self.declared_dead_at = self.second

    def _write_beat(self, name: str) -> None:
        if self.database.reachable:
            row = self.database.rows[name]
            row.beat, row.beat_date = row.beat + 1, self.second + self.database.clock_offset


def a_database_outage(world: World) -> None:
    world.database.reachable = False
    world.run(OUTAGE_SECONDS)
    world.database.reachable = True


def a_fail_over_to_a_server_whose_clock_is_ahead(world: World) -> None:
    world.database.clock_offset = 3600


def a_reaper_that_was_frozen_together_with_the_node(world: World) -> None:
    world.a_runs = world.b_runs = False
    world.run(OUTAGE_SECONDS)
    world.a_runs = world.b_runs = True


TROUBLES = [
    a_database_outage,
    a_fail_over_to_a_server_whose_clock_is_ahead,
    a_reaper_that_was_frozen_together_with_the_node,
]


# Every phase of the two nodes' beats and of the trouble against them.
PHASES = [(phase, start) for phase in range(BEAT_SECONDS) for start in range(30, 30 + BEAT_SECONDS)]


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize(("phase", "start"), PHASES)
def test_a_steady_witness_never_declares_a_living_node_dead(
    trouble: Callable[[World], None], phase: int, start: int
) -> None:
    world = World(SteadyWitness(), phase)
    world.run(start)
    trouble(world)
    world.run(10 * LEASE_SECONDS)

    assert world.declared_dead_at is None


@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_databases_clock_declares_a_living_node_dead(trouble: Callable[[World], None]) -> None:
    mistakes = 0
    for phase, start in PHASES:
        world = World(DatabaseClock(), phase)
        world.run(start)
        trouble(world)
        world.run(LEASE_SECONDS)
        mistakes += world.declared_dead_at is not None

    assert mistakes > 0


@pytest.mark.parametrize(("phase", "died_at"), PHASES)
def test_a_steady_witness_finds_a_killed_node_within_a_lease_and_one_reaper_period(
    phase: int, died_at: int
) -> None:
    world = World(SteadyWitness(), phase)
    world.run(died_at)
    world.a_runs = False
    world.run(2 * LEASE_SECONDS)

    assert world.declared_dead_at is not None
    assert world.declared_dead_at - died_at <= LEASE_SECONDS + REAP_SECONDS


@pytest.mark.parametrize(("phase", "died_at"), PHASES)
def test_a_node_that_died_in_an_outage_is_found_a_full_lease_after_it(
    phase: int, died_at: int
) -> None:
    world = World(SteadyWitness(), phase)
    world.run(died_at)
    world.a_runs = False
    a_database_outage(world)
    outage_ended_at = world.second
    world.run(3 * LEASE_SECONDS)

    assert world.declared_dead_at is not None
    after = world.declared_dead_at - outage_ended_at
    assert LEASE_SECONDS < after <= LEASE_SECONDS + BEAT_SECONDS + REAP_SECONDS


_BEAT = "UPDATE nodes SET beat = beat + 1 WHERE name = 'a' AND epoch = 1 AND state = 'LIVE'"
_VERDICT = "UPDATE nodes SET state = 'DEAD' WHERE name = 'a' AND epoch = 1 AND beat = 1"


@pytest.fixture
def node_a(engine: Engine) -> Engine:
    """Node `a`, live, in its first epoch and after its first beat."""
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TABLE nodes (name VARCHAR(64) PRIMARY KEY, epoch INT, beat INT, state "
                "VARCHAR(8))"
            )
        )
        connection.execute(text("INSERT INTO nodes VALUES ('a', 1, 1, 'LIVE')"))
    return engine


def _rows(engine: Engine, statement: str) -> int:
    with engine.begin() as connection:
        return connection.execute(text(statement)).rowcount


def test_a_beat_after_the_verdict_tells_the_node_that_it_was_fenced(node_a: Engine) -> None:
    assert (_rows(node_a, _VERDICT), _rows(node_a, _BEAT)) == (1, 0)


def test_a_verdict_after_a_beat_fences_nobody(node_a: Engine) -> None:
    assert (_rows(node_a, _BEAT), _rows(node_a, _VERDICT)) == (1, 0)


@needs.many_writers
@pytest.mark.parametrize(
    ("first", "waiting"), [(_BEAT, _VERDICT), (_VERDICT, _BEAT)], ids=["beat", "verdict"]
)
def test_of_a_beat_and_a_verdict_at_the_same_moment_only_one_counts(
    node_a: Engine, first: str, waiting: str
) -> None:
    """The one that waits re-checks the row: both conditions are columns of that row."""

    def changed(connection: Connection) -> int:
        return connection.execute(text(waiting)).rowcount

    with (
        ThreadPoolExecutor(max_workers=1) as thread,
        node_a.connect() as earlier,
        node_a.connect() as later,
        node_a.connect() as observer,
    ):
        assert earlier.execute(text(first)).rowcount == 1
        later_session = session_id(later)
        rows = thread.submit(changed, later)
        wait_until_blocked(observer, later_session)
        earlier.commit()
        assert rows.result(timeout=BOUND_SECONDS) == 0

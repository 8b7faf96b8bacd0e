"""Nodes of the model with their handlers, which may be paused, die or leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from sqlalchemy import URL, Connection, text

from queue_core.model.config_keys import KeptHistory
from queue_core.model.entry import Entry
from queue_core.running.subscriber import EntryContext, ExactlyOnceContext
from stickybus import Done, Fail, ImmediateRetries, Mode, Retry
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import database_of
from tests.properties.life.groups import CALLBACKS, Groups
from tests.properties.life.jobs import Job, Jobs
from tests.properties.life.keys import Keys
from tests.properties.life.wishes import EXACTLY_ONCE, HANDLERS, HANDLERS_OF

NODES = 2
"""Nodes that live at a time."""
INSIDE = st.sampled_from([None, None, "commit", "rollback"])
"""Whose transaction a change is of: our own, or a caller's, which commits or rolls back."""
NODE = st.integers(0, NODES - 1)
KEPT = {"keep": timedelta(seconds=20), "keep longer": timedelta(seconds=60)}
"""For how long a key is kept, by what the run comes to."""
OUTCOMES = st.lists(
    st.sampled_from(["done", "raise", "fail", "fail", "later", "pause", *KEPT]),
    min_size=1,
    max_size=4,
)


class NodeLife(RuleBasedStateMachine):
    """Two nodes at a time, which may die or leave, and a process that only posts."""

    def __init__(self, url: URL) -> None:
        super().__init__()
        self.cluster = Cluster(url)
        self.names, self.numbers = count(1), count(1)
        self.jobs = Jobs()
        self.keys, self.groups = Keys(self.jobs), Groups(self.jobs)
        self.poster = self.cluster.peer("poster")
        self.outcomes = list[str]()
        """What the next runs come to; after that, all succeed."""
        self.paused = set[tuple[str, str]]()
        self.concurrency: int | None = None
        self.per_node: int | None = None
        self.per_key: int | None = None
        self.claimed, self.claimed_of_key = Counter[str](), Counter[str]()
        self.kept = list[KeptHistory]()
        """What each node leaves in history."""
        self.nodes = list[Peer]()
        self.booked = set[int]()
        """The numbers of events whose effect is to be there once."""
        with database_of(self.bus).begin() as connection:
            connection.execute(text("CREATE TABLE effects (number INTEGER NOT NULL)"))

    def _join(self, place: int) -> Peer:
        peer = self.cluster.peer(
            f"n{next(self.names)}",
            mode=Mode.STICKY_EVENTS,
            handler_threads=3,
            retry=ImmediateRetries(1),
            max_redispatches=1_000,
            history=self.kept[place],
        )
        peer.instead = partial(self._handle, peer, "orders")
        for name, (kind, policy) in HANDLERS.items():
            once = name == EXACTLY_ONCE
            handler = partial(self._book, peer) if once else partial(self._handle, peer, name)
            peer.bus.subscribe(kind, handler, name=name, retry=policy, exactly_once=once)
        return peer.join()

    @property
    def bus(self) -> Any:
        return self.poster.bus

    # -- what the model knows ---------------------------------------------------------------------

    def _entries(self) -> list[Entry]:
        # In this order: what ends in between is in both.
        return [*self.bus.find(), *self.bus.history()]

    def _learn(self) -> list[Entry]:
        entries = self._entries()
        self.jobs.learn(entries)
        self.keys.learn()
        self.groups.learn(entries)
        return entries

    def _fault(self, what: str) -> None:
        self.jobs.faults.append(what)

    def _handle(
        self, peer: Peer, handler: str, event: Any, context: EntryContext
    ) -> Done | Retry | Fail | None:
        self._learn()
        if event.number >= CALLBACKS:
            return None
        job = self.jobs.get(event.number)
        if job is None:
            self._fault(f"{event} was rolled back, replaced, or not added")
            return None
        self._check_run(peer, job, handler, event, context)
        answer = self._answer(job, handler)
        if isinstance(answer, Retry | Fail):
            return answer
        job.succeeded.add(handler)
        if job.succeeded >= HANDLERS_OF[type(event)] and peer.bus.config.history == "failures":
            job.handled_date = self.cluster.clock.now()
        return answer

    def _book(
        self, peer: Peer, event: Any, context: ExactlyOnceContext
    ) -> Done | Retry | Fail | None:
        """Write the effect first: if the run comes to no success, it is rolled back."""
        context.connection.execute(
            text("INSERT INTO effects VALUES (:number)"), {"number": event.number}
        )
        answer = self._handle(peer, EXACTLY_ONCE, event, context)
        if not isinstance(answer, Retry | Fail):
            self.booked.add(event.number)
        return answer

    def _check_run(
        self, peer: Peer, job: Job, handler: str, event: Any, context: EntryContext
    ) -> None:
        """Note a fault if this handler must not run, or not here and now."""
        row = self.jobs.row(job)
        claim = None if row is None else (row.record_id, row.processing_owner)
        if claim != (context.record_id, peer.lifecycle.name):
            self._fault(f"{peer.lifecycle.name} runs {event}, which is {row}")
        if handler in job.succeeded:
            self._fault(f"{handler} runs {event} twice")
        if self.paused & {("", ""), ("handler", handler), ("order_key", job.order_key or "-")}:
            self._fault(f"{handler} runs {event} in a pause: {self.paused}")
        self.jobs.check_turn(job)
        if row is not None:
            job.runs(row.record_id, row.claim_count)

    def _answer(self, job: Job, handler: str) -> Done | Retry | Fail | None:
        """Come to what this run has to."""
        match self.outcomes.pop(0) if self.outcomes else "done":
            case "pause" if handler == EXACTLY_ONCE:  # SQLite's file is locked for its effect
                return None
            case "raise":
                raise RuntimeError
            case "fail":
                return Fail("for good")
            case "later":
                return Retry(after=4)
            case "pause":  # who runs next in this run must not start
                self.pause(what=("handler", "second"), resumes=False)
                for node in self.nodes:
                    node.lifecycle.paused.look()
            case "keep" | "keep longer" as asked:
                job.ask(KEPT[asked])
                return Done(keep=KEPT[asked])
        return None

    def _change(self, work: Callable[[Connection | None], Any], inside: str | None) -> Any:
        """Make a change in our own transaction or in a caller's; None if it was rolled back."""
        if inside is None:
            return work(None)
        with database_of(self.bus).engine.connect() as connection:
            made = work(connection)
            connection.commit() if inside == "commit" else connection.rollback()
        return made if inside == "commit" else None

    # -- nodes ------------------------------------------------------------------------------------

    @rule(node=NODE, outcomes=OUTCOMES)
    def run(self, *, node: int, outcomes: list[str]) -> None:
        self.outcomes = outcomes
        self.nodes[node].run()
        self.outcomes = []

    @rule(node=NODE)
    def claim(self, *, node: int) -> None:
        self.nodes[node].lifecycle.paused.look()
        self.nodes[node].lifecycle.limited.look()
        self.nodes[node].claim()

    @rule(seconds=st.sampled_from([1, 4, 30]))
    def live(self, *, seconds: int) -> None:
        self.cluster.live(seconds, *self.nodes, step=min(seconds, 3))
        self._hear()

    def _hear(self) -> None:
        """Let the time pass after which each node has heard of a change."""
        self.cluster.live(1, *self.nodes)
        for node in self.nodes:
            node.lifecycle.limited.turn(self.cluster.clock.monotonic())
            node.lifecycle.claim_loop.turn()

    @rule(node=NODE, claims=st.booleans(), wakes=st.booleans())
    def die(self, *, node: int, claims: bool, wakes: bool) -> None:
        """Die, or sleep until others have taken over, and go on with what was in hand."""
        dead = self.nodes[node]
        if claims:
            dead.claim()
        self.nodes[node] = self._join(node)
        self.cluster.bury(dead.bus.config.node_name or "", *self.nodes)
        if wakes:
            dead.lifecycle.pool.run_submitted()
            dead.lifecycle.finisher.write_all()

    @rule(node=NODE)
    def leave(self, *, node: int) -> None:
        self.nodes[node].lifecycle.membership.leave()
        self.nodes[node] = self._join(node)

    # -- pauses -----------------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(
            [("", ""), ("handler", "orders"), ("handler", "first"), ("order_key", "k")]
        ),
        resumes=st.booleans(),
    )
    def pause(self, *, what: tuple[str, str], resumes: bool) -> None:
        if resumes:
            self._resume()
        kind, name = what
        self.bus.pause(**({kind: name} if kind else {}))
        self.paused.add(what)

    @precondition(lambda self: self.paused)
    @rule()
    def resume(self) -> None:
        self._resume()

    def _resume(self) -> None:
        for kind, name in self.paused:
            self.bus.resume(**({kind: name} if kind else {}))
        self.paused.clear()

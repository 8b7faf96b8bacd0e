"""Nodes with handlers, and whatever may happen to what is posted: the rules of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import URL, Connection, text

from queue_core.links.keys import key_of
from queue_core.model.entry import Entry
from queue_core.model.keyed import Answer, Keep, KeyState, OnConflict
from queue_core.model.posting import OnFailed, OrderFailure
from queue_core.model.priority import Priority
from queue_core.model.states import State
from queue_core.reading.live_entries import Entries
from queue_core.running.subscriber import EntryContext
from queue_core.storage.groups import StoredGroups
from stickybus import (
    Circuit,
    DuplicateKeyError,
    ExponentialRetries,
    Fail,
    ImmediateRetries,
    Mode,
    Retry,
    RetryPolicy,
    ScheduledRetries,
)
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, database_of
from tests.properties.life.groups import CALLBACKS, Group, Groups
from tests.properties.life.jobs import Job, Jobs
from tests.properties.life.keys import ANSWERS, Keys

NODES = 2
"""Nodes that live at a time."""
A_WHILE = timedelta(seconds=40)
INSIDE = st.sampled_from([None, None, "commit", "rollback"])
"""Whose transaction a change is of: our own, or a caller's, which commits or rolls back."""
NODE = st.integers(0, NODES - 1)
OUTCOMES = st.lists(
    st.sampled_from(["done", "raise", "fail", "fail", "later", "pause"]), min_size=1, max_size=4
)


@dataclass(frozen=True)
class Timed:
    """An event whose handler is run again at fixed times."""

    number: int


@dataclass(frozen=True)
class Probed:
    """An event whose handler has a circuit."""

    number: int


@dataclass(frozen=True)
class Shared:
    """An event of two handlers."""

    number: int


HANDLERS: dict[str, tuple[type[Any], RetryPolicy]] = {
    "timed": (Timed, ScheduledRetries((5,))),
    "probed": (Probed, Circuit(initial_seconds=2, maximum_seconds=8, max_retries=3, jitter=0)),
    "first": (Shared, ImmediateRetries(1)),
    "second": (Shared, ExponentialRetries(initial_seconds=3, max_retries=2, jitter=0)),
}
"""Beside that of `Order`, which runs again at once."""


@dataclass(frozen=True)
class Wish:
    """A post, as far as its options can be combined and what they name is there."""

    kind: type[Any]
    key: str | None
    keep: Keep
    on_conflict: OnConflict
    order_key: str | None
    order_failure: OrderFailure
    after: list[int | str]
    on_failed: OnFailed
    group: int | None
    priority: Priority
    delay: int

    def options(self, after: list[Any], group: int | None) -> dict[str, Any]:
        """The arguments of the post, which waits for `after`, if for anything."""
        options: dict[str, Any] = {"group": group, "delay": self.delay}
        if self.key is not None:
            allowed = ["return", "raise", "replace", "requeue", "debounce"]
            if group is not None or after:
                allowed = ["return", "raise"]
            elif self.order_key is not None:
                allowed = ["return", "raise", "replace"]
            on_conflict = self.on_conflict if self.on_conflict in allowed else allowed[-1]
            options |= {"key": self.key, "keep": self.keep, "on_conflict": on_conflict}
        if self.order_key is not None:
            options |= {"order_key": self.order_key, "order_failure": self.order_failure}
        if after:
            options |= {"after": after, "on_failed": self.on_failed}
        if not (after or self.delay):
            options["priority"] = self.priority
        return options


WISHES = st.builds(
    Wish,
    kind=st.sampled_from([Order, Order, Timed, Probed, Shared]),
    key=st.sampled_from([None, "x", "y"]),
    keep=st.sampled_from(["waiting", "living", A_WHILE, "forever"]),
    on_conflict=st.sampled_from(["return", "raise", "replace", "requeue", "debounce"]),
    order_key=st.sampled_from([None, "k", "l"]),
    order_failure=st.sampled_from(["hold", "skip"]),
    after=st.lists(st.sampled_from([0, 1, 2, 3, "x"]), max_size=2),
    on_failed=st.sampled_from(["cancel", "run", "hold"]),
    group=st.sampled_from([None, 0, 1]),
    priority=st.sampled_from(["normal", "normal", "high", "urgent"]),
    delay=st.sampled_from([0, 0, 0, 5]),
)


class ClusterLife(RuleBasedStateMachine):
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
        self.claimed = Counter[str]()
        self.nodes = [self._join() for _ in range(NODES)]

    def _join(self) -> Peer:
        peer = self.cluster.peer(
            f"n{next(self.names)}",
            mode=Mode.STICKY_EVENTS,
            handler_threads=3,
            retry=ImmediateRetries(1),
            max_redispatches=1_000,
        )
        peer.handler = partial(self._handle, peer, "orders")  # type: ignore[assignment]
        for name, (kind, policy) in HANDLERS.items():
            peer.bus.subscribe(kind, partial(self._handle, peer, name), name=name, retry=policy)
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
        return entries

    def _fault(self, what: str) -> None:
        self.jobs.faults.append(what)

    def _handle(
        self, peer: Peer, handler: str, event: Any, context: EntryContext
    ) -> Retry | Fail | None:
        if event.number >= CALLBACKS:
            return None
        self._learn()
        job = self.jobs.get(event.number)
        if job is None:
            self._fault(f"{event} was rolled back, replaced, or not added")
            return None
        row = self.jobs.row(job)
        claim = None if row is None else (row.record_id, row.processing_owner)
        if claim != (context.record_id, peer.lifecycle.name):
            self._fault(f"{peer.lifecycle.name} runs {event}, which is {row}")
        if handler in job.succeeded:
            self._fault(f"{handler} runs {event} twice")
        if self.paused & {("", ""), ("handler", handler), ("order_key", job.order_key or "-")}:
            self._fault(f"{handler} runs {event} in a pause: {self.paused}")
        self.jobs.check_turn(job)
        match self.outcomes.pop(0) if self.outcomes else "done":
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
        job.succeeded.add(handler)
        return None

    def _change(self, work: Callable[[Connection | None], Any], inside: str | None) -> Any:
        """Make a change in our own transaction or in a caller's; None if it was rolled back."""
        if inside is None:
            return work(None)
        with database_of(self.bus).engine.connect() as connection:
            made = work(connection)
            connection.commit() if inside == "commit" else connection.rollback()
        return made if inside == "commit" else None

    # -- posts ------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self._open(None)

    @rule(wishes=st.lists(WISHES, min_size=1, max_size=3), inside=INSIDE, by=st.integers(0, NODES))
    def post(self, *, wishes: list[Wish], inside: str | None, by: int) -> None:
        for wish in wishes:
            self._post(wish, inside, by)
            self._learn()

    @rule(wishes=st.lists(WISHES, min_size=1, max_size=3), node=NODE, outcomes=OUTCOMES)
    def post_and_run(self, *, wishes: list[Wish], node: int, outcomes: list[str]) -> None:
        self.post(wishes=wishes, inside=None, by=NODES)
        self.run(node=node, outcomes=outcomes)

    @rule(wish=WISHES, again=WISHES, node=NODE)
    def post_beside_a_claim(self, *, wish: Wish, again: Wish, node: int) -> None:
        """Post with the keys of an entry that a node has claimed."""
        self.post(wishes=[wish], inside=None, by=NODES)
        self.claim(node=node)
        self._learn()
        self.post(wishes=[replace(again, key=wish.key)], inside=None, by=NODES)

    @rule(wish=WISHES, again=WISHES, node=NODE)
    def requeue_what_runs(self, *, wish: Wish, again: Wish, node: int) -> None:
        """Post what follows an entry that a node has claimed, and run both."""
        wish = replace(wish, key="x", keep="living", order_key=None, after=[], group=None, delay=0)
        again = replace(again, on_conflict="requeue", order_key=None, after=[], group=None)
        self.post_beside_a_claim(wish=wish, again=again, node=node)
        self.run(node=node, outcomes=[])

    @rule(wish=WISHES, waits=WISHES, node=NODE, wakes=st.booleans())
    def die_with_what_is_awaited(self, *, wish: Wish, waits: Wish, node: int, wakes: bool) -> None:
        self.post(wishes=[replace(wish, delay=0), replace(waits, after=[0])], inside=None, by=NODES)
        self.die(node=node, claims=True, wakes=wakes)

    @rule(wish=WISHES, node=NODE, outcomes=OUTCOMES)
    def pause_what_runs_next(self, *, wish: Wish, node: int, outcomes: list[str]) -> None:
        """Pause the second handler of an event while the first one runs."""
        shared = replace(wish, kind=Shared, key=None, order_key=None, after=[], delay=0)
        self.post(wishes=[shared], inside=None, by=NODES)
        self.run(node=node, outcomes=["pause", *outcomes])

    def _post(self, wish: Wish, inside: str | None, by: int) -> None:
        group = None if wish.group is None else self.groups.open_one(wish.group)
        awaited, names = self._awaited(wish.after)
        job = Job(
            next(self.numbers),
            order_key=wish.order_key,
            order_failure=wish.order_failure,
            after=awaited,
            on_failed=wish.on_failed,
            group=group,
        )
        options = wish.options(names, group)
        if wish.key is None:
            if self._posted(wish, job, options, inside, by) is not None:
                self.jobs.add(job)
            return
        state = self.keys.state(wish.key, self.cluster.clock.now())
        answer = self.keys.answer(state, options["on_conflict"])
        if answer is None:
            with pytest.raises(DuplicateKeyError) as caught:
                self._posted(wish, job, options, inside, by)
            assert caught.value.answer == ANSWERS[state]
            return
        posted = self._posted(wish, job, options, inside, by)
        if posted is None:
            return
        assert posted.answer is answer
        if answer is Answer.ADDED:
            self.jobs.add(job)
            self.keys.put(wish.key, job, wish.keep)
        else:
            self.keys.conflicted(wish.key, answer, options["on_conflict"], job.number)

    def _posted(
        self, wish: Wish, job: Job, options: dict[str, Any], inside: str | None, by: int
    ) -> Any:
        """The answer of a post, or None if it was rolled back."""
        bus: Any = [*self.nodes, self.poster][by].bus
        return self._change(
            lambda connection: bus.post(wish.kind(job.number), connection=connection, **options),
            inside,
        )

    def _awaited(self, after: list[int | str]) -> tuple[list[Job], list[Any]]:
        """Jobs to wait for, by their places among the newest or by a key, and their names."""
        newest, found = [job for job in self.jobs if not job.forgotten][::-1], dict[Any, Job]()
        for one in after:
            holder = self.keys.holder(one) if isinstance(one, str) else None
            if holder is not None and not holder.job.forgotten and self._is_held(str(one)):
                found["bus", one] = holder.job
            elif isinstance(one, int) and one < len(newest):
                row = self.jobs.row(newest[one])
                assert row is not None
                found[row.record_id] = newest[one]
        return list(found.values()), list(found)

    def _is_held(self, key: str) -> bool:
        return self.keys.state(key, self.cluster.clock.now()) is not KeyState.UNKNOWN

    # -- groups -----------------------------------------------------------------------------------

    def _open(self, inside: str | None) -> None:
        # The id is known afterwards only: a callback has the number that the group has here.
        base = CALLBACKS + 10 * next(self.numbers)
        group_id = self._change(
            lambda connection: self.bus.open_group(
                on_finished=Order(base),
                on_succeeded=Order(base + 1),
                on_failed=Order(base + 2),
                connection=connection,
            ),
            inside,
        )
        if group_id is not None:
            self.groups.known[group_id] = Group()

    def _seal(self, place: int, inside: str | None) -> None:
        group_id = self.groups.open_one(place)
        if group_id is not None and self._change(
            lambda connection: self.bus.seal(group_id, connection=connection), inside
        ):
            self.groups.known[group_id].sealed = True

    @rule(place=st.integers(0, 1), inside=INSIDE)
    def seal_one_and_open_another(self, *, place: int, inside: str | None) -> None:
        self._open(inside)
        self._seal(place, inside)

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
        self.nodes[node] = self._join()
        self.cluster.bury(dead.bus.config.node_name or "", *self.nodes)
        if wakes:
            dead.lifecycle.pool.run_submitted()
            dead.lifecycle.finisher.write_all()

    @rule(node=NODE)
    def leave(self, *, node: int) -> None:
        self.nodes[node].lifecycle.membership.leave()
        self.nodes[node] = self._join()

    # -- users ------------------------------------------------------------------------------------

    def _over(self) -> list[Job]:
        """Jobs that may be retried."""
        over = [job for job in self.jobs if job.state in {State.FAILED, State.REMOVED}]
        return [job for job in over if not (job.forgotten or job.discarded)]

    @precondition(lambda self: self._over())
    @rule(place=st.integers(0, 2), force=st.booleans(), inside=INSIDE)
    def retry(self, *, place: int, force: bool, inside: str | None) -> None:
        job = self._over()[-1 - place % len(self._over())]
        row = self.jobs.row(job)
        assert row is not None
        key = key_of(row.headers)
        holder = self.keys.holder(key)
        another = bool(key) and self._is_held(key) and holder is not None and holder.job is not job
        retry = partial(self._retry, row.record_id, force)
        if another and not force:
            with pytest.raises(DuplicateKeyError):
                self._change(retry, inside)
            return
        waiters = self._waiters_of(row.record_id)
        new_id = self._change(retry, inside)
        if new_id is None:
            return
        self.jobs.retried(job, waiters)
        if key and not another:
            keep = self.bus.key_status(key).keep
            self.keys.put(key, job, A_WHILE if keep == "period" else keep)

    def _waiters_of(self, record_id: int) -> set[int]:
        """The ids of the entries that still wait for one."""
        waits = self.poster.store.dependencies.statements
        with database_of(self.bus).begin() as connection:
            found = waits.of_awaited(connection, "bus_events", ids=[record_id])
        return {row.waiter_id for row in found}

    def _retry(self, record_id: int, force: bool, connection: Connection | None) -> int:  # noqa: FBT001 -- for partial
        new_id: int = self.bus.retry(record_id, force=force, connection=connection)
        return new_id

    @precondition(lambda self: self._over())
    @rule(inside=INSIDE)
    def discard(self, *, inside: str | None) -> None:
        job = self._over()[-1]
        row = self.jobs.row(job)
        if row is None or job.state is not State.FAILED:
            return
        record_id = row.record_id
        if self._change(
            lambda connection: self.bus.discard(record_id, connection=connection), inside
        ):
            job.discarded = True

    def _waiting(self) -> list[Job]:
        """Jobs that have not begun, the newest first."""
        free = {State.AVAILABLE, State.WAITING}
        rows = [(job, self.jobs.row(job)) for job in self.jobs]
        return [job for job, row in rows if row is not None and row.processing_state in free][::-1]

    @precondition(lambda self: self._waiting())
    @rule(place=st.integers(0, 5), inside=INSIDE)
    def remove(self, *, place: int, inside: str | None) -> None:
        row = self.jobs.row(self._waiting()[place % len(self._waiting())])
        assert row is not None
        entries, record_id = Entries(self.poster.store, "bus"), row.record_id
        self._change(lambda connection: entries.remove(record_id, connection=connection), inside)

    @precondition(lambda self: self._waiting())
    @rule(place=st.integers(0, 5), delay=st.sampled_from([0, 8]))
    def reschedule(self, *, place: int, delay: int) -> None:
        row = self.jobs.row(self._waiting()[place % len(self._waiting())])
        assert row is not None
        self.bus.reschedule_all(record_ids=[row.record_id], delay=delay)

    @rule()
    def release(self) -> None:
        for job in self._waiting():
            row = self.jobs.row(job)
            if job.after and row is not None and row.processing_state is State.WAITING:
                if self.bus.release(row.record_id):
                    job.free = True
                return

    @rule(key=st.sampled_from(["x", "y"]))
    def release_key(self, *, key: str) -> None:
        self.bus.release_key(key)
        self.keys.release(key)

    @rule()
    def truncate(self) -> None:
        # What was not noted by then is unknown from then on.
        for _ in range(3):
            self._hear()
        self._learn()
        self.bus.truncate_history()

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

    @rule(
        concurrency=st.sampled_from([0, 1, 2, 3, None]),
        per_node=st.sampled_from([None, None, 1, 2]),
    )
    def limit(self, *, concurrency: int | None, per_node: int | None) -> None:
        """Limit the bus; 0: no more."""
        if concurrency == 0:
            self.bus.unlimit()
            concurrency = per_node = None
        elif concurrency is None and per_node is None:
            self.bus.limit(rate=1, per=timedelta(seconds=1), burst=2)
        else:
            self.bus.limit(concurrency=concurrency, per_node=per_node)
        self.concurrency, self.per_node = concurrency, per_node
        self._hear()

    # -- what holds -------------------------------------------------------------------------------

    @invariant()
    def all_is_as_promised(self) -> None:
        entries = self._learn()
        assert self.jobs.faults == []
        self.groups.check(StoredGroups(self.poster.store).newest(), entries)
        self._check_limit(entries)
        for key in ("x", "y"):
            status = self.bus.key_status(key)
            state = self.keys.state(key, self.cluster.clock.now())
            assert status.state is state, (key, status)
            if state is not KeyState.UNKNOWN:
                holder = self.keys.holder(key)
                assert holder is not None
                row = self.jobs.row(holder.job)
                assert row is None or status.record_id == row.record_id
        of_order_key = Counter(
            job.order_key
            for job in self.jobs
            if (row := self.jobs.row(job)) is not None
            and job.state is None
            and row.processing_state is not State.WAITING
        )
        del of_order_key[None]
        assert all(number == 1 for number in of_order_key.values())

    def _check_limit(self, entries: list[Entry]) -> None:
        """No more is claimed than the limit says; what it finds claimed may be more, and shrinks.

        What its node knows to have no place is not going to start.
        """
        found = Counter(
            node.lifecycle.name
            for node in self.nodes
            for entry in entries
            if entry.processing_state is State.IN_PROCESSING
            and entry.processing_owner == node.lifecycle.name
            and node.lifecycle.holdings.lane_without_place(entry) is None
        )
        before, self.claimed = self.claimed, found
        if self.concurrency is not None:
            assert found.total() <= max(self.concurrency, before.total())
        if self.per_node is not None:
            for owner, claimed in found.items():
                assert claimed <= max(self.per_node, before[owner])

    # -- the end ----------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            self._run_all_to_their_ends()
        finally:
            self.cluster.close()

    def _run_all_to_their_ends(self) -> None:
        """When everything is resumed and let run, all ends; what somebody has to decide is left."""
        self._resume()
        self.limit(concurrency=0, per_node=None)
        while (group_id := self.groups.open_one(0)) is not None:
            self._seal(0, None)
            assert self.groups.known[group_id].sealed
        for _ in range(25):
            self.live(seconds=4)
            for node in range(NODES):
                self.run(node=node, outcomes=[])
            self.all_is_as_promised()
            self._decide()
            if not self.bus.find():
                break
        assert self.bus.find() == []
        assert all(group.frozen for group in self.groups.known.values())
        with database_of(self.bus).begin() as connection:
            for table in ("ordered", "order_heads", "circuits"):
                left = connection.execute(text(f"SELECT count(*) FROM queue_{table}"))
                assert left.scalar_one() == 0, table

    def _decide(self) -> None:
        """Decide for whom only a person can."""
        for held in self.bus.held_keys():
            self.bus.discard(held.record_id)
        for job in self.jobs:
            row = self.jobs.row(job)
            if job.holds:
                job.discarded = True
            if (
                row is not None
                and row.processing_state is State.WAITING
                and (job.may_wait() or self.jobs.waits_for_itself(job))
            ):
                job.free = self.bus.release(row.record_id) or job.free

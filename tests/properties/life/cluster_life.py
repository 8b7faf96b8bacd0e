"""Nodes with handlers, and whatever may happen to what is posted: the rules of the model."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from sqlalchemy import Connection, text

from queue_core.links.keys import key_of
from queue_core.links.limit_keys import limit_key_of
from queue_core.model.entry import Entry
from queue_core.model.keyed import KeyState
from queue_core.model.states import State
from queue_core.reading.live_entries import Entries
from queue_core.storage.groups import StoredGroups
from stickybus import DuplicateKeyError
from tests.contract.harness import database_of
from tests.properties.life.jobs import Job, number_of
from tests.properties.life.node_life import INSIDE, NODE, NODES
from tests.properties.life.post_life import PostLife
from tests.properties.life.wishes import WISHES, Wish


class ClusterLife(PostLife):
    """What users do, and what holds whatever happens."""

    # -- users ------------------------------------------------------------------------------------

    def _over(self) -> list[Job]:
        """Jobs that may be retried."""
        over = [job for job in self.jobs if job.state in {State.FAILED, State.REMOVED}]
        return [job for job in over if not (job.forgotten or job.discarded)]

    @precondition(lambda self: self._over())
    @rule(place=st.integers(0, 2), earlier=st.integers(0, 2), force=st.booleans(), inside=INSIDE)
    def retry(self, *, place: int, earlier: int, force: bool, inside: str | None) -> None:
        """Retry a job by the id of its last try, or of an earlier one, which comes to the same."""
        job = self._over()[-1 - place % len(self._over())]
        row = self.jobs.row(job)
        assert row is not None
        key = key_of(row.headers)
        holder = self.keys.holder(key)
        another = bool(key) and self._is_held(key) and holder is not None and holder.job is not job
        tries = self.jobs.tries[job.number]
        retry = partial(self._retry, tries[-1 - earlier % len(tries)], force)
        if another and not force:
            with pytest.raises(DuplicateKeyError):
                self._change(retry, inside)
            return
        waiters = self._waiters_of(row.record_id)
        new_id = self._change(retry, inside)
        if new_id is None:
            return
        started = [one for one in self.bus.find() if one.processing_state is not State.WAITING]
        self.jobs.retried(job, waiters, [number_of(one) for one in started])
        if key and not another:
            self.keys.put(key, job, job.keep)

    @rule(wish=WISHES, waits=WISHES, early=st.booleans(), node=NODE, inside=INSIDE)
    def retry_what_is_awaited(
        self, *, wish: Wish, waits: Wish, early: bool, node: int, inside: str | None
    ) -> None:
        """Retry a failed job for which one of its order key waits, maybe posted after it failed."""
        wish = replace(wish, key=None, order_key="k", order_failure="skip", after=[], delay=0)
        waits = replace(waits, key=None, order_key="k", after=[0], on_failed="hold")
        self.post(wishes=[wish, waits] if early else [wish], inside=None, by=NODES)
        self.run(node=node, outcomes=["fail", "fail"])
        self._learn()
        if not early:
            self.post(wishes=[waits], inside=None, by=NODES)
        if self._over():
            self.retry(place=0, earlier=0, force=False, inside=inside)

    def _waiters_of(self, record_id: int) -> set[int]:
        """The ids of the entries that still wait for one."""
        waits = self.poster.store.dependencies.statements
        with database_of(self.bus).begin() as connection:
            found = waits.of_awaited(connection, "bus_events", ids=[record_id])
        return {row.waiter_id for row in found} & {entry.record_id for entry in self.bus.find()}

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

    @rule(search_key1=st.integers(0, 2))
    def remove_all(self, *, search_key1: int) -> None:
        self.bus.remove_all(search_key1=search_key1)

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
        concurrency=st.sampled_from([0, 1, 2, 3, None]),
        per_node=st.sampled_from([None, None, 1, 2]),
        per_key=st.sampled_from([None, 1, 2]),
    )
    def limit(
        self, *, concurrency: int | None, per_node: int | None, per_key: int | None = None
    ) -> None:
        """Limit the bus; 0: no more."""
        if concurrency == 0:
            self.bus.unlimit()
            concurrency = per_node = per_key = None
        elif concurrency is per_node is per_key is None:
            self.bus.limit(rate=1, per=timedelta(seconds=1), burst=2)
        else:
            self.bus.limit(concurrency=concurrency, per_node=per_node, per_key=per_key)
        self.concurrency, self.per_node, self.per_key = concurrency, per_node, per_key
        self._hear()

    # -- what holds -------------------------------------------------------------------------------

    @invariant()
    def all_is_as_promised(self) -> None:
        entries = self._learn()
        assert self.jobs.faults == []
        self.groups.check(StoredGroups(self.poster.store).newest(), entries)
        self._check_limit(entries)
        self._check_effects()
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
        claimed = [
            (node.lifecycle.name, limit_key_of(entry.headers))
            for node in self.nodes
            for entry in entries
            if entry.processing_state is State.IN_PROCESSING
            and entry.processing_owner == node.lifecycle.name
            and node.lifecycle.holdings.lane_without_place(entry) is None
        ]
        found, of_key = Counter(owner for owner, _ in claimed), Counter(key for _, key in claimed)
        del of_key[""]
        before, self.claimed = self.claimed, found
        of_key_before, self.claimed_of_key = self.claimed_of_key, of_key
        if self.concurrency is not None:
            assert found.total() <= max(self.concurrency, before.total())
        if self.per_node is not None:
            for owner, number in found.items():
                assert number <= max(self.per_node, before[owner])
        if self.per_key is not None:
            for key, number in of_key.items():
                assert number <= max(self.per_key, of_key_before[key])

    def _check_effects(self) -> None:
        """What an exactly-once handler wrote is there once, if it has succeeded."""
        with database_of(self.bus).begin() as connection:
            effects = Counter(connection.scalars(text("SELECT number FROM effects")))
        assert effects == Counter(self.booked)

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
            if row is not None and row.processing_state is State.WAITING and job.may_wait():
                job.free = self.bus.release(row.record_id) or job.free

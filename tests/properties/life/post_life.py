"""Posts of the model with all options, also in groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from queue_core.model.config_keys import KeptHistory
from queue_core.model.keyed import Answer, KeyState
from stickybus import DuplicateKeyError
from tests.contract.harness import Order
from tests.properties.life.groups import CALLBACKS, Group
from tests.properties.life.jobs import Job
from tests.properties.life.keys import ANSWERS
from tests.properties.life.node_life import INSIDE, KEPT, NODE, NODES, OUTCOMES, NodeLife
from tests.properties.life.wishes import WISHES, Shared, Wish


class PostLife(NodeLife):
    """Posts by nodes and by a process that only posts."""

    # -- posts ------------------------------------------------------------------------------------

    @initialize(kept=st.lists(st.sampled_from(["all", "failures"]), min_size=NODES, max_size=NODES))
    def begin(self, *, kept: list[KeptHistory]) -> None:
        self.kept = kept
        self.nodes = [self._join(place) for place in range(NODES)]
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

    @rule(wish=WISHES, node=NODE, longer_first=st.booleans())
    def keep_as_handlers_ask(self, *, wish: Wish, node: int, longer_first: bool) -> None:
        """Run an entry whose two handlers tell how long its key is kept."""
        wish = replace(wish, kind=Shared, key="x", order_key=None, after=[], delay=0)
        self.run(node=node, outcomes=[])
        self._learn()
        self.post(wishes=[replace(wish, priority="urgent")], inside=None, by=NODES)
        self.run(node=node, outcomes=sorted(KEPT, reverse=longer_first))
        self.live(seconds=30)

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
        options = wish.options(names, group) | {"search_key1": job.number % 3}
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

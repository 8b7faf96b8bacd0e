"""Bugs that the model of all features must find, each with steps to the place where it shows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest.mock import patch

from sqlalchemy import Connection, RootTransaction

import queue_core.storage.endings
import queue_core.storage.moves
from queue_core.links.circuits import Circuits
from queue_core.links.dependencies import Dependencies
from queue_core.links.keys import KeyLink
from queue_core.links.link import Ending, RetryByHand
from queue_core.links.links import Links, carries
from queue_core.links.ordering import Ordering
from queue_core.model.answers import heed
from queue_core.model.config_keys import KeptHistory
from queue_core.model.entry import Entry
from queue_core.model.lanes import Lane
from queue_core.model.states import State
from queue_core.running.exactly_once import ExactlyOnce
from queue_core.running.pauses_in_force import PausesInForce
from queue_core.running.run import Run
from queue_core.storage.moves import Moves
from queue_core.storage.places import Places
from sql.statements.entries import Statements
from sql.statements.history import History, Successor
from tests.contract.harness import Order
from tests.properties.life.cluster_life import ClusterLife
from tests.properties.life.node_life import NODES
from tests.properties.life.wishes import Booked, Probed, Shared, Wish

Steps: TypeAlias = Callable[[ClusterLife], None]


@dataclass(frozen=True)
class Bug:
    """What replaces a function of the engine, and the steps."""

    of: Any
    name: str
    instead: Any
    steps: Steps
    kept: KeptHistory = "all"

    def planted(self) -> Any:
        """A context in which the engine has this bug."""
        return patch.object(self.of, self.name, self.instead)


def _nothing(*_: Any, **__: Any) -> None:
    """In place of what is forgotten."""


def _post(life: ClusterLife, *wishes: dict[str, Any]) -> None:
    plain: dict[str, Any] = {
        "kind": Order,
        "key": None,
        "keep": "living",
        "on_conflict": "return",
        "order_key": None,
        "order_failure": "hold",
        "after": [],
        "on_failed": "cancel",
        "group": None,
        "priority": "normal",
        "delay": 0,
    }
    life.post(wishes=[Wish(**plain | wish) for wish in wishes], inside=None, by=NODES)
    life.all_is_as_promised()


def _run(life: ClusterLife, *outcomes: str) -> None:
    life.run(node=0, outcomes=list(outcomes))
    life.all_is_as_promised()


# -- steps ----------------------------------------------------------------------------------------


def _requeued(life: ClusterLife) -> None:
    """What follows a running entry of the same key was posted."""
    _post(life, {"key": "x"})
    life.claim(node=0)
    life.all_is_as_promised()
    _post(life, {"key": "x", "on_conflict": "requeue"})
    _run(life)


def _died_with_what_is_awaited(life: ClusterLife) -> None:
    _post(life, {})
    life.claim(node=0)
    _post(life, {"after": [0]})
    life.die(node=0, claims=False, wakes=False)


def _behind_in_its_key(life: ClusterLife) -> None:
    """The first entry of a key waits for another one, which has a date."""
    _post(life, {"delay": 5}, {"after": [0], "order_key": "k"}, {"order_key": "k"})
    _run(life)


def _kept_by_two_handlers(life: ClusterLife) -> None:
    """The first of two handlers wants the key to be kept longer than the second one does."""
    _post(life, {"kind": Shared, "key": "x"})
    _run(life, "keep longer", "keep")
    life.live(seconds=30)
    life.all_is_as_promised()


def _paused_meanwhile(life: ClusterLife) -> None:
    """The second handler of an event is paused while the first one runs."""
    _post(life, {"kind": Shared})
    _run(life, "pause")


def _retried_twice(life: ClusterLife) -> None:
    """One of two handlers succeeds in a retry, and the other in a retry of the first entry."""
    _post(life, {"kind": Shared})
    _run(life, "fail", "fail")
    life.retry(place=0, earlier=0, force=False, inside=None)
    _run(life, "done", "fail")
    life.retry(place=0, earlier=1, force=True, inside=None)
    _run(life)


def _paused(life: ClusterLife) -> None:
    life.pause(what=("", ""), resumes=False)
    life.live(seconds=1)
    _post(life, {})
    _run(life)


def _paused_key(life: ClusterLife) -> None:
    life.pause(what=("order_key", "k"), resumes=False)
    life.live(seconds=1)
    _post(life, {"order_key": "k"}, {})
    _run(life)


def _failed_twice(life: ClusterLife) -> None:
    """One failed entry of a handler with a circuit is the probe, and another one waits."""
    _post(life, {"kind": Probed}, {"kind": Probed})
    _run(life, "raise", "raise")


def _probe_removed(life: ClusterLife) -> None:
    _failed_twice(life)
    life.remove(place=1, inside=None)


def _limited_on_each_node(life: ClusterLife) -> None:
    life.limit(concurrency=None, per_node=1)
    _post(life, {}, {}, {})
    life.claim(node=0)
    life.all_is_as_promised()


def _limited_of_each_key(life: ClusterLife) -> None:
    life.limit(concurrency=None, per_node=None, per_key=1)
    for node in range(NODES):
        _post(life, {"limit_key": "m"})
        life.claim(node=node)
        life.all_is_as_promised()


def _limited(life: ClusterLife) -> None:
    life.limit(concurrency=1, per_node=None)
    _post(life, {}, {})
    for node in range(NODES):
        life.claim(node=node)
        life.all_is_as_promised()


def _booked(*outcomes: str) -> Steps:
    """Two handlers run, the effect of the second of which is to be there once, if it succeeds."""

    def steps(life: ClusterLife) -> None:
        _post(life, {"kind": Booked})
        _run(life, *outcomes)
        life.live(seconds=30)
        _run(life)

    return steps


def _failed(life: ClusterLife) -> None:
    _post(life, {})
    _run(life, "fail")


def _retried_with_who_waits(life: ClusterLife) -> None:
    """One that was skipped is retried while another one of its key waits for it."""
    waits = {"after": [0], "on_failed": "hold", "order_key": "k"}
    _post(life, {"order_key": "k", "order_failure": "skip"}, waits)
    _run(life, "fail")
    life.retry(place=0, earlier=0, force=False, inside=None)


def _held_and_decided(decide: Callable[[ClusterLife], None]) -> Callable[[ClusterLife], None]:
    """A failed entry holds its key until a caller's transaction decides about it."""

    def steps(life: ClusterLife) -> None:
        _post(life, {"order_key": "k"}, {"order_key": "k"})
        _run(life, "fail")
        decide(life)
        life.live(seconds=4)
        _run(life)
        assert life.bus.held_keys() == []

    return steps


def _retried_with_who_came_later(life: ClusterLife) -> None:
    """One that has failed is named by another one, and then retried."""
    _failed(life)
    _post(life, {"after": [0], "on_failed": "hold"})
    life.retry(place=0, earlier=0, force=False, inside=None)


def _handled_with_key_in_group(life: ClusterLife) -> None:
    _post(life, {"key": "x", "keep": "forever", "group": 0})
    _run(life)


# -- bugs -----------------------------------------------------------------------------------------

_successor: Any = History.successor
_free: Any = Places._free
_record: Any = Moves._record


def _told_last(self: Run, returned: object) -> None:
    self.keep = heed(returned) or self.keep


def _unasked(entry: Entry, state: State, _asked: Any = None) -> Ending:
    return Ending(entry, state)


def _free_anywhere(self: Places, limit: Any, bunches: Any, owner: str) -> int:
    free: int = _free(self, limit._replace(per_node=None), bunches, owner)
    return free


def _free_here(self: Places, limit: Any, bunches: Any, owner: str) -> int:
    free: int = _free(self, limit, [one for one in bunches if one.owner == owner], owner)
    return free


def _without_its_end(self: History, *found: Any) -> Successor | None:
    last: Successor | None = _successor(self, *found)
    return last and last._replace(last_id=None)


def _record_untold(self: Moves, *arguments: Any, kept: bool = True) -> Any:
    links = self._store.links
    with nullcontext() if kept else patch.object(links, "ended", _nothing):
        return _record(self, *arguments, kept=kept)


def _retried_by_marks(
    self: Links, connection: Connection, retry: RetryByHand, *, lent: bool
) -> None:
    for kind, _ in self._kinds:
        if carries(retry.old.headers, kind.mark):
            kind.retried(connection, retry, lent=lent)


def _lane_of_queue(self: PausesInForce, entry: Entry) -> Lane | None:
    return self.lane_of(entry.queue_name)


BUGS: dict[str, Bug] = {
    "a key does not learn that its entry has ended": Bug(KeyLink, "ended", _nothing, _requeued),
    "a key is not kept as its handler has asked": Bug(
        queue_core.storage.endings, "Ending", _unasked, _kept_by_two_handlers
    ),
    "of two handlers the last one tells how long a key is kept": Bug(
        Run, "heed", _told_last, _kept_by_two_handlers
    ),
    "nobody waits for the copy of a reaped entry": Bug(
        Dependencies, "renewed", _nothing, _died_with_what_is_awaited
    ),
    "a released entry has no turn in its key": Bug(
        Ordering, "release", _nothing, _behind_in_its_key
    ),
    "a pause stops no run that has begun": Bug(
        PausesInForce, "stops", lambda _self, _run: False, _paused_meanwhile
    ),
    "a pause of the queue is not obeyed": Bug(PausesInForce, "lane_of_entry", _nothing, _paused),
    "a pause of an order key is not obeyed": Bug(
        PausesInForce, "lane_of_entry", _lane_of_queue, _paused_key
    ),
    "a circuit whose probe was removed gets no other": Bug(
        Circuits, "choose_others", _nothing, _probe_removed
    ),
    "a circuit stays open": Bug(Circuits, "_close", _nothing, _failed_twice),
    "a retry knows of no retry before it": Bug(
        History, "successor", _without_its_end, _retried_twice
    ),
    "a retry runs behind who waits for it": Bug(
        Ordering, "put_first", _nothing, _retried_with_who_waits
    ),
    "a key stays held though a caller has retried its failure": Bug(
        Ordering,
        "_resume",
        _nothing,
        _held_and_decided(
            lambda life: life.retry(place=0, earlier=0, force=False, inside="commit")
        ),
    ),
    "a key stays held though a caller has discarded its failure": Bug(
        Ordering,
        "_put_off",
        _nothing,
        _held_and_decided(lambda life: life.discard(inside="commit")),
    ),
    "who came after a failure does not wait for the retry": Bug(
        Links, "retried", _retried_by_marks, _retried_with_who_came_later
    ),
    "a limit of each node is not counted": Bug(
        Places, "_free", _free_anywhere, _limited_on_each_node
    ),
    "a node counts its own claims alone": Bug(Places, "_free", _free_here, _limited),
    "a limit of each key is not counted": Bug(
        Statements, "key_places", lambda *_arguments, **_options: [], _limited_of_each_key
    ),
    "an effect is committed without the outcome": Bug(
        ExactlyOnce, "_record", lambda *_arguments, **_options: True, _booked()
    ),
    "an effect stays though its handler has failed": Bug(
        RootTransaction, "rollback", RootTransaction.commit, _booked("done", "raise")
    ),
    "what failed leaves no row where handled entries do not": Bug(
        queue_core.storage.moves, "_is_handled", lambda _finished: True, _failed, "failures"
    ),
    "nobody learns of the end of what leaves no row": Bug(
        Moves, "_record", _record_untold, _handled_with_key_in_group, "failures"
    ),
}

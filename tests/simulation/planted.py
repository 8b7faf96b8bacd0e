"""Bugs that can be planted in the engine, by name: the simulator must catch each of them.

Each replaces one function of the engine by one that forgets what that function is there for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from sqlalchemy import Connection, bindparam, literal, select, update

import queue_core.cluster.reaper
import queue_core.finishing.finisher
import queue_core.lifecycle
import queue_core.links.dependencies
import queue_core.storage.moves
import sql.statements.base
import sql.statements.claims
import sql.statements.groups
import sql.statements.lanes
from queue_core.claiming import set_aside
from queue_core.claiming.claimer import Claimer
from queue_core.claiming.linked_looks import LinkedLooks
from queue_core.claiming.ordered_keys import OrderedKeys
from queue_core.cluster.node import Node
from queue_core.cluster.reaper import Reaper
from queue_core.cluster.silence_watch import SilenceWatch
from queue_core.holding.gates import Gates
from queue_core.holding.holdings import Holdings
from queue_core.holding.ledger import Ledger
from queue_core.holding.sweep import Sweep
from queue_core.links.groups import GroupLink
from queue_core.links.keys import KeyLink
from queue_core.links.ordering import Ordering
from queue_core.links.verdict import Verdict
from queue_core.model.lanes import WAITING_LANE, Lane
from queue_core.model.limit import Limit
from queue_core.model.outcome import Outcome
from queue_core.model.posting import Posting
from queue_core.model.states import State
from queue_core.model.transit import Transit
from queue_core.posting.announced_commits import AnnouncedCommits
from queue_core.posting.insertion import Insertion
from queue_core.posting.keyed_posts import KeyedPosts
from queue_core.posting.ordered_posts import OrderedPosts
from queue_core.posting.poster import Post, Poster
from queue_core.running.exactly_once import ExactlyOnce
from queue_core.running.handler_pool import HandlerPool
from queue_core.storage.effects import Wait
from queue_core.storage.moves import Moves
from queue_core.storage.places import Places
from queue_core.storage.store import Store
from sql.statements import Statements
from sql.statements.nodes import DEAD, LIVE, Nodes
from sql.statements.ordered import Ordered, OrderKey
from sql.tables import queue_nodes

Planting = tuple[Any, str, Any]
"""Where, what, and what is put in its place."""
BUGS: dict[str, Callable[[], list[Planting]]] = {}


def _bug(plant: Callable[[], list[Planting]]) -> Callable[[], list[Planting]]:
    BUGS[plant.__name__] = plant
    return plant


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Inside the block, the engine has this bug (none for an empty name).

    Databases are to be opened inside, too.
    """
    replaced = [patch.object(*planting) for planting in BUGS[name]()] if name else []
    for one in replaced:
        one.start()
    try:
        yield
    finally:
        for one in reversed(replaced):
            one.stop()


# -- fences --------------------------------------------------------------------------------------


@_bug
def fence_removed() -> list[Planting]:
    """Outcomes, retries and releases ask for the id alone."""

    def held(self: Statements, batch: Any) -> list[Any]:
        return [self.main.c.record_id == batch.c.record_id]

    def fence(self: Statements, _owner: str, record_id: int, _claim_count: int) -> list[Any]:
        return [self.main.c.record_id == record_id]

    return [(Statements, "_held", held), (Statements, "_fence", fence)]


@_bug
def finish_without_claim() -> list[Planting]:
    """A finish asks for the owner, but not for the claim."""

    def holds(self: Statements, _batch: Any) -> list[Any]:
        return [self.main.c.processing_owner == bindparam("owner")]

    return [(Statements, "_claim_holds", holds)]


@_bug
def fence_of_the_node_table() -> list[Planting]:
    """A finish asks whether the owner's node lives, instead of asking the row."""

    def holds(_self: Statements, _batch: Any) -> list[Any]:
        lives = (queue_nodes.c.name == bindparam("owner")) & (queue_nodes.c.state == LIVE)
        return [queue_nodes.select().where(lives).exists()]

    return [(Statements, "_claim_holds", holds)]


@_bug
def release_leaves_the_fence() -> list[Planting]:
    """What is given back, and what is claimed, keeps its claim count."""

    def unraised(self: Statements) -> dict[str, Any]:
        values: dict[str, Any] = taken(self)
        del values["claim_count"]
        return values

    taken: Any = Statements._taken
    return [
        (sql.statements.claims, "raised", lambda count: count),
        (Statements, "_taken", unraised),
    ]


@_bug
def exactly_once_unfenced() -> list[Planting]:
    """An exactly-once handler's work is committed whether the entry is still its own or not."""
    record: Any = ExactlyOnce._record

    def recorded(self: ExactlyOnce, *arguments: Any, **options: Any) -> bool:
        record(self, *arguments, **options)
        return True

    return [(ExactlyOnce, "_record", recorded)]


@_bug
def exactly_once_runs_again() -> list[Planting]:
    """Run an exactly-once handler again after a lock time-out, though its lease may have ended."""
    return [(HandlerPool, "may_call", lambda _self, _run: True)]


# -- leases --------------------------------------------------------------------------------------


@_bug
def epoch_not_raised() -> list[Planting]:
    """A name that is taken over, or taken anew, keeps its epoch."""

    def take_over(self: Node, row: Any) -> bool:
        taken = self.database.write(
            lambda connection: Nodes().take_over(
                connection,
                self.name,
                epoch=row.epoch,
                beat=row.beat,
                values=self._values(row.epoch),
            )
        )
        if taken:
            self.epoch, self._beat = row.epoch, 0
        return taken

    return [(Node, "_take_over", take_over)]


@_bug
def start_without_lease() -> list[Planting]:
    """What was claimed starts, whether the lease holds or not."""
    return [(Holdings, "may_start", lambda _self, _epoch: True)]


@_bug
def lease_of_the_claim_forgotten() -> list[Planting]:
    """What was claimed under a lease that ended starts under the next."""
    return [
        (
            Holdings,
            "may_start",
            lambda self, _epoch: self.node is not None and self.node.lease.holds(),
        )
    ]


@_bug
def lease_from_the_answer() -> list[Planting]:
    """A lease counts from the answer to a beat, not from when it was sent."""
    beaten: Any = Node._beaten
    return [(Node, "_beaten", lambda self, _sent: beaten(self, self.clock.monotonic()))]


@_bug
def beat_number_used_again() -> list[Planting]:
    """The beat after one whose answer was lost has the same number."""
    turn: Any = Node.beat_turn

    def beat_turn(self: Node) -> float:
        before = self._beat
        try:
            seconds: float = turn(self)
        except BaseException:
            self._beat = before
            raise
        return seconds

    return [(Node, "beat_turn", beat_turn)]


@_bug
def beat_of_a_dead_node() -> list[Planting]:
    """A node that was declared dead, or lost its name, goes on beating."""

    def beat(
        _nodes: Nodes,
        connection: Connection,
        name: str,
        *,
        epoch: int,
        beat: int,
        now: Any,
        serves: str,
    ) -> bool:
        del epoch
        values = {"beat": beat, "beat_date": now, "serves": serves}
        changed = update(queue_nodes).where(queue_nodes.c.name == name).values(values)
        return connection.execute(changed).rowcount == 1

    return [(Nodes, "beat", beat)]


@_bug
def name_taken_at_once() -> list[Planting]:
    """A name is taken without watching whether its holder is silent."""
    register: Any = Node.register

    def registered(self: Node) -> None:
        sent = self.clock.monotonic()
        row = self.database.fetch(lambda connection: Nodes().node(connection, self.name))
        if row is not None and self._take_over(row):
            self._beaten(sent)
        else:
            register(self)

    return [(Node, "register", registered)]


@_bug
def lease_judged_by_dates() -> list[Planting]:
    """A reaper compares the date of the last beat with its own."""

    def fence(self: Reaper, row: Any) -> bool:
        node = self._node
        if (
            row.name == node.name
            or (node.clock.now() - row.beat_date).total_seconds() < row.lease_seconds
        ):
            return False
        return node.database.write(
            lambda connection: Nodes().fence(connection, row.name, epoch=row.epoch, beat=row.beat)
        )

    return [(Reaper, "_fence", fence)]


@_bug
def outage_not_noticed() -> list[Planting]:
    """A reaper counts the time of an outage as silence of others."""
    return [
        (
            SilenceWatch,
            "_watched_seconds",
            lambda self, row: self._node.clock.monotonic() - self._seen[row.name].since,
        )
    ]


@_bug
def gap_judged_by_the_own_lease() -> list[Planting]:
    """Let a reaper judge by its own lease, and not by that of the node that it judges."""

    def watched(self: SilenceWatch, row: Any) -> float:
        node = self._node
        steady_from = node.lease.steady_from(node.config.lease_seconds / 2)
        if steady_from is None:
            return 0.0
        return node.clock.monotonic() - max(self._seen[row.name].since, steady_from)

    return [(SilenceWatch, "_watched_seconds", watched)]


# -- reaping -------------------------------------------------------------------------------------


@_bug
def reaper_without_lock() -> list[Planting]:
    """A reaper moves what a node left without looking whether it has come back."""
    row: Any = Nodes.node

    def node(self: Nodes, connection: Connection, name: str, *, lock: bool = False) -> Any:
        return SimpleNamespace(state=DEAD) if lock else row(self, connection, name)

    return [(Nodes, "node", node)]


@_bug
def reaper_leaves_what_ran() -> list[Planting]:
    """A reaper moves only what waited."""
    batch: Any = Reaper._batch

    def moved(self: Reaper, connection: Connection, *, kind: Any, **options: Any) -> Any:
        if kind is queue_core.cluster.reaper._Kind.CLAIMED:
            return [], []
        return batch(self, connection, kind=kind, **options)

    return [(Reaper, "_batch", moved)]


@_bug
def retries_lost_at_restart() -> list[Planting]:
    """The copy of a reaped entry forgets its failures."""
    fresh: Any = sql.statements.base.fresh
    return [
        (
            sql.statements.lanes,
            "fresh",
            lambda table, lane: fresh(table, lane) | {"error_count": literal(0)},
        )
    ]


@_bug
def crash_not_counted() -> list[Planting]:
    """What killed its process is not remembered for it."""
    copy_anew: Any = Statements.copy_anew

    def copied(self: Statements, connection: Connection, **options: Any) -> int:
        return int(copy_anew(self, connection, **options | {"crashes": 0}))

    return [(Statements, "copy_anew", copied)]


# -- hand-over -----------------------------------------------------------------------------------


@_bug
def signal_before_commit() -> list[Planting]:
    """An own post is handed over before its COMMIT."""
    post: Any = Poster.post

    def early(
        self: Poster, queue_name: str, postings: Sequence[Posting], connection: Any = None
    ) -> list[int]:
        holdings, store = self._holdings, self._store
        epoch = holdings.epoch
        rows, claimed = self._rows(Post(queue_name, postings, None), may_claim=True)
        if connection is not None or not claimed:
            return list(post(self, queue_name, postings, connection))

        def work(connection: Connection) -> list[int]:
            ids = store.insert(connection, rows)
            holdings.ledger.add((record_id, 1) for record_id in ids)
            entries = [
                store.rows.entry(record_id, row) for record_id, row in zip(ids, rows, strict=True)
            ]
            self._hand_over.submit(entries, epoch, Transit())
            return ids

        return store.database.write(work)

    return [(Poster, "post", early)]


@_bug
def hand_over_on_the_commit_event() -> list[Planting]:
    """A caller's transaction counts as committed when its end is announced."""
    inserted = dict[int, dict[str, Any]]()
    insert: Any = Store.insert

    def remembering(
        self: Store, connection: Connection, rows: Sequence[dict[str, Any]], hint: Any = None
    ) -> list[int]:
        ids = list[int](insert(self, connection, rows, hint))
        inserted.update(zip(ids, rows, strict=True))
        return ids

    def add(self: AnnouncedCommits, ids: list[int]) -> None:
        holdings = self._holdings
        holdings.ledger.add((record_id, 1) for record_id in ids)
        entries = [holdings.store.rows.entry(record_id, inserted[record_id]) for record_id in ids]
        self._hand_over.submit(entries, holdings.epoch, Transit())

    return [(Store, "insert", remembering), (AnnouncedCommits, "add", add)]


# -- the ledger ----------------------------------------------------------------------------------


@_bug
def capacity_not_given_back() -> list[Planting]:
    """What has ended stays in the ledger."""
    return [(Ledger, "give_up", lambda _self, claims: list(claims))]


@_bug
def ledger_without_bound() -> list[Planting]:
    """There is always room."""
    return [(Ledger, "room", property(lambda _self: 1000))]


@_bug
def waiting_forgotten() -> list[Planting]:
    """What waits by id for room is never read."""
    return [(Claimer, "load_waiting", lambda _self: None)]


@_bug
def sweep_against_the_ledger() -> list[Planting]:
    """The sweep gives back what is in hand."""

    def turn(self: Sweep, now: float) -> int:
        if now < self.next_turn:
            return 0
        self.next_turn = now + 8.0
        return self._holdings.release(self._holdings.in_processing())

    return [(Sweep, "turn", turn)]


@_bug
def sweep_beside_a_claim() -> list[Planting]:
    """The sweep gives back what was claimed along with outcomes, before the ledger knows of it."""

    @contextmanager
    def sweeping(_self: Gates) -> Iterator[bool]:
        yield True

    return [(Gates, "sweeping", sweeping)]


@_bug
def no_sweep() -> list[Planting]:
    """Commits of unknown outcome are left as they are."""
    return [(Sweep, "turn", lambda _self, _now: 0)]


@_bug
def failed_post_kept() -> list[Planting]:
    """The ids of a post whose COMMIT gave no answer stay in the ledger."""

    def committed(self: Insertion) -> list[int]:
        def work(connection: Connection) -> list[int]:
            ids = self.store.insert(connection, self.rows)
            if self.claimed:
                self.ledger.add((record_id, 1) for record_id in ids)
            return ids

        return self.store.database.write(work)

    return [(Insertion, "commit", committed)]


@_bug
def born_claimed_past_a_limit() -> list[Planting]:
    """Posts of a limited queue are born claimed."""

    class Unknown(dict[str, Lane]):
        def __contains__(self, _queue_name: object) -> bool:
            return False

    def learn(self: Places, limits: Iterable[Limit]) -> None:
        self.lanes = Unknown({limit.queue_name: limit.lane for limit in limits})

    return [(Places, "learn", learn)]


@_bug
def places_counted_apart() -> list[Planting]:
    """A claim counts the places, and gives the lock of the limit up before it takes any."""
    claim: Any = Moves.claim
    room: Any = Places.room

    def claimed(self: Moves, lane: Lane, owner: str, limit: int, *rest: Any) -> Any:
        places = self._places

        def read(connection: Connection) -> dict[Lane, Any]:
            return {
                one: room(places, connection, one, owner, limit) for one in places.lanes.values()
            }

        rooms = self._store.database.write(read)
        with patch.object(Places, "room", lambda _self, _connection, one, *_rest: rooms[one]):
            return claim(self, lane, owner, limit, *rest)

    return [(Moves, "claim", claimed)]


@_bug
def paused_left_behind() -> list[Planting]:
    """What was set aside in a pause stays there."""
    return [(set_aside, "_bring_back", lambda _holdings, _lane, _sticky: 0)]


@_bug
def paused_to_anybody() -> list[Planting]:
    """What was set aside in a pause comes back to the node that looks first."""
    return [(set_aside, "_sticky_nodes", lambda _store: set())]


@_bug
def failure_lost_with_the_handled() -> list[Planting]:
    """Where history keeps only failures, an entry that has failed leaves no row either."""
    return [(queue_core.storage.moves, "_is_handled", lambda _finished: True)]


# -- links ---------------------------------------------------------------------------------------


def _nothing(*_: Any, **__: Any) -> None:
    """In place of what is forgotten."""


@_bug
def key_lost_at_the_reaping() -> list[Planting]:
    """The copy of a reaped entry does not have its idempotency key."""
    return [(KeyLink, "renewed", _nothing)]


@_bug
def key_taken_blindly() -> list[Planting]:
    """A post takes its key, whoever has it."""
    return [(KeyedPosts, "_settle", lambda self, key, draft, _hold: self._gain(key, draft))]


@_bug
def order_lost_at_the_reaping() -> list[Planting]:
    """The copy of a reaped entry is not the head of its order key."""
    return [(Ordering, "renewed", _nothing)]


@_bug
def order_key_started_by_each_post() -> list[Planting]:
    """An entry with an order key does not wait for those before it."""
    before: Any = OrderedPosts.before

    def started(self: OrderedPosts) -> None:
        before(self)
        for (draft, _), lane in zip(self._ordered, self._lanes, strict=True):
            draft.row |= {"lane": lane, "processing_state": State.AVAILABLE.value}

    return [(OrderedPosts, "before", started)]


@_bug
def order_keys_of_callers_forgotten() -> list[Planting]:
    """Nobody starts the order keys of callers' transactions."""
    return [(OrderedKeys, "look", lambda _self: 0)]


@_bug
def order_key_goes_on_at_a_failure() -> list[Planting]:
    """The next of an order key starts when its head has failed, and is to run again."""
    begin: Any = Wait.__init__
    apply: Any = Wait.apply

    def begun(self: Any, store: Store, *arguments: Any) -> None:
        begin(self, store, *arguments)
        self._ordering = store.ordering

    def applied(self: Any, connection: Connection) -> Any:
        held = apply(self, connection)
        entry, ordering = self._outcome.entry, self._ordering
        if '"!order"' in (entry.headers or ""):
            key = ordering.key_of(entry.queue_name, entry.headers)
            ordering.statements.remove(connection, key.table_name, entry.record_id)
            ordering._go_on(connection, key, entry.record_id)
        return held

    return [(Wait, "__init__", begun), (Wait, "apply", applied)]


@_bug
def order_key_starts_what_waits() -> list[Planting]:
    """An entry that waits for others, besides, starts when its order key has no other before it."""
    enter: Any = Ordering.enter

    def entered(
        self: Ordering, connection: Connection, entries: Sequence[Any], **options: Any
    ) -> None:
        enter(self, connection, [(key, one, Lane("")) for key, one, _ in entries], **options)

    return [(Ordering, "enter", entered)]


@_bug
def order_key_passes_over_what_waits() -> list[Planting]:
    """An entry loses its place in its order key while it waits for others."""

    def first(self: Ordered, connection: Connection, key: OrderKey) -> Any:
        entries = self.entries
        mine = [entries.c[name] == value for name, value in key._asdict().items()]
        started = select(entries.c.record_id, entries.c.lane).where(
            *mine, entries.c.lane != WAITING_LANE
        )
        return connection.execute(started.order_by(entries.c.place).limit(1)).one_or_none()

    return [(Ordered, "first", first)]


@_bug
def order_key_forgets_what_is_released() -> list[Planting]:
    """An entry that waits for others no longer has no turn in its order key."""
    return [(Ordering, "release", _nothing)]


@_bug
def outcomes_of_all_claims() -> list[Planting]:
    """A batch has an outcome of each claim of an entry."""

    def each(outcomes: Sequence[Outcome]) -> list[Outcome]:
        return list({one.entry.claim: one for one in reversed(outcomes)}.values())

    return [(queue_core.finishing.finisher, "one_each", each)]


@_bug
def links_not_looked_after() -> list[Planting]:
    """Nobody looks at what entries of callers' transactions wait for."""
    return [(LinkedLooks, "look", lambda _self: 0)]


@_bug
def wait_over_at_the_first_look() -> list[Planting]:
    """An entry starts though what it waits for has not ended."""
    return [
        (queue_core.links.dependencies, "verdict_on", lambda _rows: (Verdict.RELEASE, None)),
    ]


@_bug
def group_complete_at_its_seal() -> list[Planting]:
    """A group is complete as soon as it is sealed."""

    def completable(self: Any, connection: Connection, ids: Sequence[int]) -> list[Any]:
        rows = self.read(connection, ids)
        return [row for row in rows if row.sealed_date and not row.completed_date]

    return [(sql.statements.groups.Groups, "completable", completable)]


@_bug
def group_does_not_count() -> list[Planting]:
    """The ends of members are not counted."""
    return [(GroupLink, "ended", _nothing)]

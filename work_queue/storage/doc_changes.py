"""The docs of one modification: their sets locked, judged, and written.

Whatever is done to docs of a set raises the set's version by one, and moves its arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection

from sql.statements.work.docs import Pair, WorkDocs
from work_queue.faults import Fault, FaultKind
from work_queue.modification import (
    Action,
    ChangeDoc,
    DeleteDoc,
    DependDoc,
    DependSet,
    InsertDoc,
    RenewSet,
)
from work_queue.refs import DocRef, SetRef
from work_queue.storage.caller import Look, Rows, too_old
from work_queue.storage.ids import new_id
from work_queue.storage.moment import Moment
from work_queue.storage.rows import doc_of, set_of
from work_queue.storage.written import Faults, WrittenDocs
from work_queue.values import Stored, encode

Named = ChangeDoc | DeleteDoc | DependDoc
OfSet = DependSet | RenewSet
FAULTS = {
    ChangeDoc: FaultKind.CHANGE,
    DeleteDoc: FaultKind.DELETE,
    DependDoc: FaultKind.DEPEND,
}


class DocChanges:
    """The actions on docs and doc sets, with their places among all of the modification."""

    def __init__(self, actions: Sequence[Action], cap_bytes: int) -> None:
        self.inserts = dict[int, InsertDoc]()
        self.named = dict[int, Named]()
        self.of_sets = dict[int, OfSet]()
        self._contents = dict[int, Stored]()
        for place, action in enumerate(actions):
            match action:
                case InsertDoc():
                    self.inserts[place] = action
                case ChangeDoc() | DeleteDoc() | DependDoc():
                    self.named[place] = action
                case DependSet() | RenewSet():
                    self.of_sets[place] = action
                case _:
                    continue
            if isinstance(action, InsertDoc | ChangeDoc):
                what = f"{type(action).__name__}: the content"
                self._contents[place] = encode(action.content, cap_bytes, what=what)
        self._rows = dict[Pair, Any]()
        self._sets = dict[Pair, Any]()
        self._elsewhere = dict[Pair, Any]()
        """Sets that are not locked, of docs whose ids others are to be inserted with."""
        self._new = set[Pair]()

    @property
    def any(self) -> bool:
        """Whether there is anything about docs."""
        return bool(self.inserts or self.named or self.of_sets)

    # -- examine ----------------------------------------------------------------------------------

    def examine(
        self, connection: Connection, docs: WorkDocs, moment: Moment, look: Look | None
    ) -> Faults:
        """Lock the sets in the order of their keys, and return all that is at fault.

        See `TaskChanges.examine`.
        """
        self._rows, self._sets, self._new = {}, {}, set()
        named = sorted(_id(action.doc) for action in self.named.values())
        own = sorted((one.namespace, one.id) for one in self.inserts.values() if one.id is not None)
        before = {(row.namespace, row.doc_id): row for row in docs.present(connection, named)}
        missing = [one for one in named if one not in before]
        if look is not None and missing:
            rows = look(lambda ours: docs.present(ours, missing))
            before |= {(row.namespace, row.doc_id): row for row in rows}
        self._lock_sets(connection, docs, before, moment, look)
        # Again, since the sets are locked only now. Of a caller's snapshot they could be old.
        found = docs.lock(connection, sorted(before))
        found += _still_there(connection, docs, docs.present(connection, own), look)
        self._rows = {(row.namespace, row.doc_id): row for row in found}
        unlocked = sorted(_keys(found) - self._sets.keys())
        self._elsewhere = _sets(connection, docs, unlocked, look)
        faults = Faults()
        for place, fault in (
            *((place, self._judge_insert(one, moment)) for place, one in self.inserts.items()),
            *((place, self._judge(one, moment)) for place, one in self.named.items()),
            *((place, self._judge_set(one, moment)) for place, one in self.of_sets.items()),
        ):
            if fault is not None:
                faults[place] = fault
        for place, row in self._taken_places(connection, docs, look).items():
            faults.setdefault(place, Fault(FaultKind.INSERT, self._ref(row)))
        return faults

    def _lock_sets(
        self,
        connection: Connection,
        docs: WorkDocs,
        before: dict[Pair, Any],
        moment: Moment,
        look: Look | None,
    ) -> None:
        into = {(one.namespace, one.key) for one in self.inserts.values()}
        exclusive, shared = set(into), set[Pair]()
        for named in self.named.values():
            row = before.get(_id(named.doc))
            if row is not None:
                wanted = shared if isinstance(named, DependDoc) else exclusive
                wanted.add((row.namespace, row.doc_key))
        for action in self.of_sets.values():
            key = action.docs.namespace, action.docs.key
            (exclusive if isinstance(action, RenewSet) else shared).add(key)
        newer = set[Pair]()
        if into or look is not None:
            there = _keys(docs.sets_present(connection, sorted(exclusive | shared)))
            unseen = sorted((exclusive | shared) - there)
            if look is not None and unseen:
                newer = _keys(look(lambda ours: docs.sets_present(ours, unseen)))
            there |= newer
            missing = into - there
            self._new = set(docs.add_sets(connection, sorted(missing), moment.now))
            if look is not None:
                exclusive, shared = exclusive & (there | missing), shared & there
        for share, keys in groupby(sorted(exclusive | shared), lambda key: key not in exclusive):
            locked = docs.lock_sets(connection, list(keys), shared=share)
            self._sets |= {(row.namespace, row.doc_key): row for row in locked}
        for namespace, unseen_key in newer - self._sets.keys():
            raise too_old(f"doc set {unseen_key!r} of {namespace!r}")

    def _ref(self, row: Any) -> DocRef:
        key = row.namespace, row.doc_key
        held = self._sets.get(key) or self._elsewhere.get(key)
        return DocRef(row.namespace, row.doc_id, held.version if held else 0)

    def _judge(self, action: Named, moment: Moment) -> Fault | None:
        ref, row = action.doc, self._rows.get(_id(action.doc))
        held = None if row is None else self._sets.get((row.namespace, row.doc_key))
        if row is None or held is None or not self._is_version(ref, row, held):
            return Fault(FAULTS[type(action)], ref)
        if not isinstance(action, DependDoc) and moment.held_by_another(held):
            return Fault(FaultKind.CLAIM, ref)
        return None

    def _is_version(self, ref: DocRef, row: Any, held: Any) -> bool:
        if ref.version == held.version:
            return True
        return ref.version == 0 and any(
            (one.docs.namespace, one.docs.key) == (row.namespace, row.doc_key)
            for one in self.of_sets.values()
        )

    def _judge_insert(self, action: InsertDoc, moment: Moment) -> Fault | None:
        held = self._sets[action.namespace, action.key]
        if action.id is not None:
            row = self._rows.get((action.namespace, action.id))
            if row is not None:
                return Fault(FaultKind.INSERT, self._ref(row))
        if moment.held_by_another(held):
            ref = SetRef(action.namespace, action.key, held.version)
            return Fault(FaultKind.CLAIM, ref)
        return None

    def _judge_set(self, action: OfSet, moment: Moment) -> Fault | None:
        ref = action.docs
        held = self._sets.get((ref.namespace, ref.key))
        kind = FaultKind.DEPEND if isinstance(action, DependSet) else FaultKind.CHANGE
        if held is None or (ref.namespace, ref.key) in self._new:
            return Fault(kind, ref)
        now = SetRef(ref.namespace, ref.key, held.version)
        if held.version != ref.version:
            return Fault(kind, ref if isinstance(action, DependSet) else now)
        if isinstance(action, RenewSet) and moment.held_by_another(held):
            return Fault(FaultKind.CLAIM, now)
        return None

    def _taken_places(
        self, connection: Connection, docs: WorkDocs, look: Look | None
    ) -> dict[int, Any]:
        """Docs that are where others are to be inserted, unless they are deleted by the same."""
        wanted: dict[Pair, dict[str, int]] = {}
        for place, one in self.inserts.items():
            if (one.namespace, one.key) not in self._new:
                wanted.setdefault((one.namespace, one.key), {})[one.secondary_key] = place
        gone = {_id(one.doc) for one in self.named.values() if isinstance(one, DeleteDoc)}
        return {
            places[row.secondary_key]: row
            for (namespace, key), places in wanted.items()
            for row in _still_there(
                connection, docs, docs.at_places(connection, namespace, key, list(places)), look
            )
            if (row.namespace, row.doc_id) not in gone
        }

    # -- write ------------------------------------------------------------------------------------

    def write(self, connection: Connection, docs: WorkDocs, moment: Moment) -> WrittenDocs:
        """Write it all, after nothing was at fault. See `TaskChanges.write`."""
        written = WrittenDocs()
        after = self._write_sets(connection, docs, moment)
        gone = [_id(one.doc) for one in self.named.values() if isinstance(one, DeleteDoc)]
        if gone:
            docs.delete(connection, gone)
        for namespace, _ in gone:
            written.count(namespace, -1)
        changes = {place: one for place, one in self.named.items() if isinstance(one, ChangeDoc)}
        if changes:
            docs.change(connection, [self._changed(place, moment) for place in changes])
        for place, change in changes.items():
            row = self._rows[_id(change.doc)]
            columns = _content(self._contents[place]) | {"modified_date": moment.now}
            held = after[row.namespace, row.doc_key]
            whole = SimpleNamespace(**{**row._asdict(), **columns, **held})
            written.changed[place] = doc_of(whole)
        self._insert(connection, docs, after, written, moment)
        for place, action in self.of_sets.items():
            if isinstance(action, RenewSet):
                key = action.docs.namespace, action.docs.key
                whole = SimpleNamespace(namespace=key[0], doc_key=key[1], **after[key])
                written.sets[place] = set_of(whole)
        return written

    def _write_sets(
        self, connection: Connection, docs: WorkDocs, moment: Moment
    ) -> dict[Pair, dict[str, Any]]:
        """The new columns of each set that is touched."""
        delays = dict[Pair, float]()
        for one in self.inserts.values():
            _longest(delays, (one.namespace, one.key), one.delay)
        for named in self.named.values():
            row = self._rows[_id(named.doc)]
            if isinstance(named, ChangeDoc):
                _longest(delays, (row.namespace, row.doc_key), named.delay)
            elif isinstance(named, DeleteDoc):
                _longest(delays, (row.namespace, row.doc_key), 0.0)
        for action in self.of_sets.values():
            if isinstance(action, RenewSet):
                delays[action.docs.namespace, action.docs.key] = action.seconds
        after = dict[Pair, dict[str, Any]]()
        for key, delay in delays.items():
            arrival = max(moment.arrival(delay), moment.now)
            after[key] = {
                "version": self._sets[key].version + (key not in self._new),
                "arrival_date": arrival,
                "claimant": moment.holder(arrival),
            }
        if after:
            docs.change_sets(
                connection,
                [
                    {"of_namespace": key[0], "of_key": key[1]}
                    | {f"new_{name}": value for name, value in columns.items()}
                    for key, columns in sorted(after.items())
                ],
            )
        return after

    def _changed(self, place: int, moment: Moment) -> dict[str, Any]:
        namespace, doc_id = _id(self.named[place].doc)
        columns = {"modified_date": moment.now, **_content(self._contents[place])}
        return {"of_namespace": namespace, "of_id": doc_id} | {
            f"new_{name}": value for name, value in columns.items()
        }

    def _insert(
        self,
        connection: Connection,
        docs: WorkDocs,
        after: dict[Pair, dict[str, Any]],
        written: WrittenDocs,
        moment: Moment,
    ) -> None:
        for place, one in sorted(self.inserts.items(), key=_insert_order):
            row = {
                "namespace": one.namespace,
                "doc_id": one.id or new_id(moment.now),
                "doc_key": one.key,
                "secondary_key": one.secondary_key,
                "created_date": moment.now,
                "modified_date": moment.now,
                **_content(self._contents[place]),
            }
            if docs.insert_new(connection, row):
                written.count(one.namespace, 1)
                held = after[one.namespace, one.key]
                written.inserted[place] = doc_of(SimpleNamespace(**row, **held))
            else:
                ref = DocRef(one.namespace, row["doc_id"], 0)
                for there in docs.present(connection, [_id(ref)]):
                    self._elsewhere |= _sets(connection, docs, sorted(_keys([there])), None)
                    ref = self._ref(there)
                written.faults[place] = Fault(FaultKind.INSERT, ref)


def _still_there(connection: Connection, docs: WorkDocs, seen: Rows, look: Look | None) -> Rows:
    """The docs that are there by now. See `TaskChanges._still_there`."""
    ids = sorted((row.namespace, row.doc_id) for row in seen)
    if look is None or not ids:
        return seen
    now = look(lambda ours: docs.present(ours, ids))
    there = {(row.namespace, row.doc_id) for row in now}
    return [*now, *docs.lock(connection, [one for one in ids if one not in there])]


def _sets(
    connection: Connection, docs: WorkDocs, keys: list[Pair], look: Look | None
) -> dict[Pair, Any]:
    """Sets as they are by now, which may change at once."""
    if not keys:
        return {}
    if look is None:
        found = docs.sets_present(connection, keys)
    else:
        found = look(lambda ours: docs.sets_present(ours, keys))
    return {(row.namespace, row.doc_key): row for row in found}


def _keys(rows: Rows) -> set[Pair]:
    return {(row.namespace, row.doc_key) for row in rows}


def _id(ref: DocRef) -> Pair:
    return ref.namespace, ref.id


def _insert_order(of_place: tuple[int, InsertDoc]) -> Pair:
    """That of all modifications: an insert waits for others of its id."""
    _, one = of_place
    return one.namespace, one.id or ""


def _longest(delays: dict[Pair, float], key: Pair, delay: float) -> None:
    delays[key] = max(delay, delays.get(key, 0.0))


def _content(value: Stored) -> dict[str, Any]:
    return dict(zip(("content_json", "content_bytes"), value, strict=True))

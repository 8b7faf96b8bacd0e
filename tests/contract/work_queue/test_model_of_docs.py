"""Docs and doc sets do what a model of a few lines does, whatever is called in whatever order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests import requirements as needs
from tests.contract.work_queue.model import CLAIMANTS, Machine, run
from tests.contract.work_queue.planted_in_docs import BUGS, SPACE
from work_queue.document import DocClaim, DocSet
from work_queue.faults import DependencyError, FaultKind
from work_queue.modification import ChangeDoc, DeleteDoc, DependDoc, DependSet, InsertDoc, RenewSet
from work_queue.refs import DocRef, SetRef

KEYS, PLACES = ("x", "y"), ("", "s")
IDS = ("1", "2", "3")
KINDS = ("insert", "insert", "change", "delete", "depend", "renew set", "depend set")


@dataclass(frozen=True)
class KnownSet:
    """A doc set of the model. Its docs: place and content by id."""

    version: int
    at: datetime
    claimant: str
    docs: Mapping[str, tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawn:
    """An action of a modification, before the model says which version it names."""

    kind: str
    id: str
    key: str
    place: str
    is_old: bool
    delay: float
    content: int

    @property
    def subject(self) -> tuple[str, str]:
        """What may be named once in a modification."""
        return ("set", self.key) if self.kind.endswith("set") else ("doc", self.id)


class DocMachine(Machine):
    """Calls with docs, sets, claimants and times of which some fit and some don't."""

    def __init__(self) -> None:
        super().__init__()
        self.known = dict[str, KnownSet]()

    # -- what happens -----------------------------------------------------------------------------

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True),
        claimant=st.sampled_from(CLAIMANTS),
    )
    def claim(self, keys: list[str], claimant: str) -> None:
        refused = list[tuple[FaultKind, str]]()
        sets = list[DocSet]()
        try:
            claims = [DocClaim(SPACE, key) for key in keys]
            sets = self.work.claim_docs(*claims, lease_seconds=10, claimant=claimant)
        except DependencyError as error:
            refused = [(fault.kind, fault.ref.key) for fault in error.faults]  # type: ignore[union-attr]
        held = [key for key in keys if self._held_by_another(key, claimant)]
        assert refused == [(FaultKind.CLAIM, key) for key in held]
        if held:
            return
        assert [one.key for one in sets] == keys
        for one in sets:
            before = self.known.get(one.key, self._nothing())
            assert {doc.id: (doc.secondary_key, doc.content) for doc in one.docs} == before.docs
            at = self.clock.now() + timedelta(seconds=10)
            self.known[one.key] = replace(
                before, version=before.version + 1, at=at, claimant=claimant
            )

    actions = st.lists(
        st.builds(
            Drawn,
            st.sampled_from(KINDS),
            st.sampled_from(IDS),
            st.sampled_from(KEYS),
            st.sampled_from(PLACES),
            st.sampled_from([False, False, False, True]),
            st.sampled_from([0.0, 3.0]),
            st.integers(0, 9),
        ),
        min_size=1,
        max_size=3,
        unique_by=(
            lambda drawn: drawn.subject,
            lambda drawn: (drawn.key, drawn.place) if drawn.kind == "insert" else drawn.subject,
        ),
    )

    @rule(actions=actions, claimant=st.sampled_from(CLAIMANTS))
    def modify(self, actions: list[Drawn], claimant: str) -> None:
        self._modify(actions, claimant)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), delay=st.sampled_from([0.0, 3.0, 90.0]))
    def renew(self, data: st.DataObject, delay: float) -> None:
        key = data.draw(st.sampled_from(sorted(self.known)))
        claimant = data.draw(st.sampled_from([self.known[key].claimant or "me", *CLAIMANTS]))
        self._modify([Drawn("renew set", "", key, "", False, delay, 0)], claimant)

    def _modify(self, actions: list[Drawn], claimant: str) -> None:
        found = [self._fault(drawn, actions, claimant) for drawn in actions]
        refused = list[FaultKind]()
        try:
            self.work.modify(*map(self._action, actions), claimant=claimant)
        except DependencyError as error:
            refused = [fault.kind for fault in error.faults]
        assert refused == [fault for fault in found if fault is not None]
        if not refused:
            self._apply(actions, claimant)

    def _action(self, drawn: Drawn) -> Any:
        doc = DocRef(SPACE, drawn.id, self._version(drawn))
        docs = SetRef(SPACE, drawn.key, self._version(drawn))
        match drawn.kind:
            case "insert":
                return InsertDoc(
                    namespace=SPACE,
                    key=drawn.key,
                    secondary_key=drawn.place,
                    id=drawn.id,
                    content=drawn.content,
                    delay=drawn.delay,
                )
            case "change":
                return ChangeDoc(doc, drawn.content, drawn.delay)
            case "delete":
                return DeleteDoc(doc)
            case "depend":
                return DependDoc(doc)
            case "renew set":
                return RenewSet(docs, drawn.delay)
            case _:
                return DependSet(docs)

    # -- what is to come of it --------------------------------------------------------------------

    def _nothing(self) -> KnownSet:
        return KnownSet(0, self.clock.now(), "")

    def _key_of(self, doc_id: str) -> str | None:
        return next((key for key, one in self.known.items() if doc_id in one.docs), None)

    def _version(self, drawn: Drawn) -> int:
        key = drawn.key if drawn.kind.endswith("set") else self._key_of(drawn.id)
        newest = self.known[key].version if key in self.known else 0
        return newest + 7 if drawn.is_old else newest

    def _held_by_another(self, key: str, claimant: str) -> bool:
        one = self.known.get(key, self._nothing())
        return one.at > self.clock.now() and one.claimant not in {"", claimant}

    def _fault(self, drawn: Drawn, actions: list[Drawn], claimant: str) -> FaultKind | None:
        key, kind = self._key_of(drawn.id), drawn.kind
        if kind == "insert":
            gone = {one.id for one in actions if one.kind == "delete"}
            there = self.known.get(drawn.key, self._nothing()).docs.items()
            if key is not None:
                return FaultKind.INSERT
            if self._held_by_another(drawn.key, claimant):
                return FaultKind.CLAIM
            if any(place == drawn.place and one not in gone for one, (place, _) in there):
                return FaultKind.INSERT
            return None
        if kind.endswith("set"):
            key = drawn.key if drawn.key in self.known else None
        if key is None or drawn.is_old:
            faults = {"delete": FaultKind.DELETE, "change": FaultKind.CHANGE}
            return FaultKind.CHANGE if kind == "renew set" else faults.get(kind, FaultKind.DEPEND)
        held = self._held_by_another(key, claimant)
        return FaultKind.CLAIM if held and not kind.startswith("depend") else None

    def _apply(self, actions: list[Drawn], claimant: str) -> None:
        touched = dict[str, list[Drawn]]()
        for drawn in actions:
            if not drawn.kind.startswith("depend"):
                own = drawn.kind in {"insert", "renew set"}
                key = drawn.key if own else self._key_of(drawn.id)
                touched.setdefault(key or "", []).append(drawn)
        for key, all_of_it in touched.items():
            before = self.known.get(key)
            docs = dict(before.docs if before else {})
            for drawn in sorted(all_of_it, key=lambda one: one.kind == "insert"):
                if drawn.kind == "delete":
                    docs.pop(drawn.id)
                elif drawn.kind == "change":
                    docs[drawn.id] = (docs[drawn.id][0], drawn.content)
                elif drawn.kind == "insert":
                    docs[drawn.id] = (drawn.place, drawn.content)
            renewed = [drawn.delay for drawn in all_of_it if drawn.kind == "renew set"]
            longest = max(0.0 if one.kind == "delete" else one.delay for one in all_of_it)
            delay = renewed[0] if renewed else longest
            self.known[key] = KnownSet(
                before.version + 1 if before else 0,
                self.clock.now() + timedelta(seconds=delay),
                claimant if delay else "",
                docs,
            )

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def the_docs_are_the_models(self) -> None:
        read = {
            doc.id: (doc.key, doc.secondary_key, doc.content, doc.version, doc.at, doc.claimant)
            for doc in self.work.docs(SPACE)
        }
        assert read == {
            doc_id: (key, place, content, one.version, one.at, one.claimant)
            for key, one in self.known.items()
            for doc_id, (place, content) in one.docs.items()
        }

    @invariant()
    def the_numbers_are_the_models(self) -> None:
        total = sum(len(one.docs) for one in self.known.values())
        held = sum(len(one.docs) for one in self.known.values() if one.at > self.clock.now())
        stats = [(one.namespace, one.docs, one.claimed) for one in self.work.namespace_stats()]
        assert stats == ([(SPACE, total, held)] if total else [])


@pytest.mark.slow
@needs.any_database
def test_docs_do_what_the_model_does(database_name: str) -> None:
    run(DocMachine, 15, Phase.generate, Phase.shrink)


# -- bugs that are planted ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs.any_database
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(
    database_name: str, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*BUGS[bug])
    with pytest.raises(AssertionError):
        run(DocMachine, 5_000, Phase.generate)  # it ends with the first that catches it

"""Bugs that are planted into the docs of work queues, which a model has to catch."""

from __future__ import annotations

from typing import Any

from sql.statements.work.docs import WorkDocs
from work_queue.faults import DependencyError, Fault
from work_queue.refs import DocRef
from work_queue.storage import doc_changes, doc_claims
from work_queue.storage.moment import Moment

SPACE = "n"
"""The namespace of the model's docs."""

_change_sets = WorkDocs.change_sets
_judge_set = doc_changes.DocChanges._judge_set


def _sets_keep_their_version(self: WorkDocs, connection: Any, rows: Any) -> None:
    kept = [row | {"new_version": max(0, row["new_version"] - 1)} for row in rows]
    _change_sets(self, connection, kept)


def _members_are_not_asked(_self: Any, _ref: DocRef, _row: Any, _held: Any) -> bool:
    return True


def _set_versions_are_not_asked(self: Any, action: Any, moment: Moment) -> Fault | None:
    fault = _judge_set(self, action, moment)
    return None if fault and (SPACE, fault.ref.key) in self._sets else fault  # type: ignore[union-attr]


def _no_set_is_refused(_what: str, _faults: Any) -> Exception:
    return DependencyError("a claim", ())


BUGS: dict[str, tuple[Any, str, Any]] = {
    "a set keeps its version": (WorkDocs, "change_sets", _sets_keep_their_version),
    "versions of docs are not asked": (
        doc_changes.DocChanges,
        "_is_version",
        _members_are_not_asked,
    ),
    "versions of sets are not asked": (
        doc_changes.DocChanges,
        "_judge_set",
        _set_versions_are_not_asked,
    ),
    "a claim names no set": (doc_claims, "refusal", _no_set_is_refused),
    "holders of sets are not asked": (Moment, "held_by_another", lambda _moment, _row: False),
}
"""What each replaces: an object, the name of its part, and the other part."""

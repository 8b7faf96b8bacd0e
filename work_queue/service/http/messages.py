"""The bodies of requests, as they are sent: names in camel case, whole numbers also as texts.

A field that is missing or null is empty. Fields that are not known are left alone.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import msgspec

from queue_core.errors import InvalidRequestError
from work_queue.document import DocClaim
from work_queue.modification import Action, Delete, Depend
from work_queue.refs import TaskRef
from work_queue.service.marked import unmarked
from work_queue.service.protocol import DocData, DocName, Rules, TaskData, mode_of, named

Whole: TypeAlias = int | str | None
Text: TypeAlias = str | None
LONGEST_NUMBER = 20

M = TypeVar("M", bound=msgspec.Struct)


class _Message(msgspec.Struct, frozen=True, rename="camel"):
    pass


class TaskIdMessage(_Message, frozen=True):
    """One version of a task."""

    id: Text = None
    version: Whole = None
    queue: Text = None

    def ref(self) -> TaskRef:
        """The version that it names. Raises InvalidRequestError."""
        return named(TaskRef(self.id or "", whole(self.version, "version"), self.queue or ""))


class TaskDataMessage(_Message, frozen=True):
    """What a task has, or shall have."""

    queue: Text = None
    at_ms: Whole = None
    by_ms: Whole = None
    value: Any = None
    id: Text = None
    attempt: Whole = None
    err: Text = None

    def data(self) -> TaskData:
        """The same, read. Raises InvalidRequestError."""
        return TaskData(
            queue=self.queue or "",
            by_ms=whole(self.by_ms, "byMs"),
            at_ms=whole(self.at_ms, "atMs"),
            value=unmarked(self.value),
            id=self.id or "",
            attempt=whole(self.attempt, "attempt"),
            err=self.err or "",
        )


class TaskChangeMessage(_Message, frozen=True):
    """A change of a task."""

    old_id: TaskIdMessage | None = None
    new_data: TaskDataMessage | None = None
    mode: Text = None

    def action(self, rules: Rules) -> Action:
        """What it does. Raises InvalidRequestError."""
        old = None if self.old_id is None else self.old_id.ref()
        new = None if self.new_data is None else self.new_data.data()
        return rules.change(old, new, mode_of(self.mode or ""))


class DocIdMessage(_Message, frozen=True):
    """One version of a doc, or of a doc set."""

    namespace: Text = None
    id: Text = None
    key: Text = None
    secondary_key: Text = None
    version: Whole = None

    def name(self) -> DocName:
        """The same, read. Raises InvalidRequestError."""
        return DocName(
            namespace=self.namespace or "",
            id=self.id or "",
            key=self.key or "",
            secondary_key=self.secondary_key or "",
            version=whole(self.version, "version"),
        )


class DocDataMessage(_Message, frozen=True):
    """What a doc has, or shall have."""

    namespace: Text = None
    id: Text = None
    key: Text = None
    secondary_key: Text = None
    content: Any = None
    at_ms: Whole = None
    by_ms: Whole = None

    def data(self) -> DocData:
        """The same, read. Raises InvalidRequestError."""
        return DocData(
            namespace=self.namespace or "",
            id=self.id or "",
            key=self.key or "",
            secondary_key=self.secondary_key or "",
            content=unmarked(self.content),
            by_ms=whole(self.by_ms, "byMs"),
            at_ms=whole(self.at_ms, "atMs"),
        )


class DocChangeMessage(_Message, frozen=True):
    """A change of a doc, or of a doc set's lease."""

    old_id: DocIdMessage | None = None
    new_data: DocDataMessage | None = None
    mode: Text = None

    def action(self, rules: Rules) -> Action:
        """What it does. Raises InvalidRequestError."""
        old = None if self.old_id is None else self.old_id.name()
        new = None if self.new_data is None else self.new_data.data()
        return rules.change_doc(old, new, mode_of(self.mode or ""))


class ModifyMessage(_Message, frozen=True):
    """A modification."""

    claimant_id: Text = None
    inserts: list[TaskDataMessage] | None = None
    changes: list[TaskChangeMessage] | None = None
    deletes: list[TaskIdMessage] | None = None
    depends: list[TaskIdMessage] | None = None
    doc_inserts: list[DocDataMessage] | None = None
    doc_changes: list[DocChangeMessage] | None = None
    doc_deletes: list[DocIdMessage] | None = None
    doc_depends: list[DocIdMessage] | None = None

    def actions(self, rules: Rules) -> list[Action]:
        """What it does. Raises InvalidRequestError."""
        return [
            *(rules.insert(one.data()) for one in self.inserts or ()),
            *(one.action(rules) for one in self.changes or ()),
            *(Delete(one.ref()) for one in self.deletes or ()),
            *(Depend(one.ref()) for one in self.depends or ()),
            *(rules.insert_doc(one.data()) for one in self.doc_inserts or ()),
            *(one.action(rules) for one in self.doc_changes or ()),
            *(rules.delete_doc(one.name()) for one in self.doc_deletes or ()),
            *(rules.depend_doc(one.name()) for one in self.doc_depends or ()),
        ]


class ClaimMessage(_Message, frozen=True):
    """A claim of a task."""

    claimant_id: Text = None
    queues: list[str] | None = None
    duration_ms: Whole = None
    poll_ms: Whole = None


class SetMessage(_Message, frozen=True):
    """A doc set of a claim."""

    set: DocIdMessage = DocIdMessage()
    omit_members: bool | None = None

    def claim(self) -> DocClaim:
        """The wish for it. Raises InvalidRequestError."""
        name = self.set.name()
        if name.id or name.secondary_key:
            raise InvalidRequestError(
                "a doc set is claimed by its namespace and key alone. Nothing was claimed.",
                key="set",
            )
        return DocClaim(name.namespace, name.key, bool(self.omit_members))


class DocClaimMessage(_Message, frozen=True):
    """A claim of doc sets; `namespace` and `key` name the only one."""

    namespace: Text = None
    claimant: Text = None
    key: Text = None
    duration_ms: Whole = None
    sets: list[SetMessage] | None = None
    task_to_match: TaskIdMessage | None = None

    def claims(self, rules: Rules) -> list[DocClaim]:
        """The sets. Raises InvalidRequestError."""
        if not self.sets:
            return [DocClaim(self.namespace or "", self.key or "")]
        if rules.protocol == 1 or self.namespace or self.key:
            raise InvalidRequestError(
                "sets are named by protocol 2, and not beside a namespace and a key. Nothing was "
                "claimed.",
                key="sets",
            )
        return [one.claim() for one in self.sets]

    def until(self, rules: Rules) -> TaskRef | None:
        """The task by which they are held. Raises InvalidRequestError."""
        if self.task_to_match is None:
            return None
        if rules.protocol == 1:
            raise InvalidRequestError(
                "a task to match is named by protocol 2. Nothing was claimed.", key="taskToMatch"
            )
        return self.task_to_match.ref()


class ClaimDocsMessage(_Message, frozen=True):
    """The body of a claim of doc sets."""

    claim_query: DocClaimMessage = DocClaimMessage()


def decoded(body: bytes, kind: type[M]) -> M:
    """A body as a message. Raises InvalidRequestError."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"the body can't be read: {error}. Nothing was written.", key="body"
        ) from error


def whole(value: Whole, key: str) -> int:
    """A whole number that may come as a text. Raises InvalidRequestError."""
    if isinstance(value, str):
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < LONGEST_NUMBER):
            raise InvalidRequestError(
                f"{key}={value!r:.80} is not allowed. Nothing was written. Allowed: an integer.",
                key=key,
                value=value,
            )
        return int(value)
    return value or 0

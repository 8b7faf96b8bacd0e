"""The bodies of requests, as proto3's JSON has them.

Names are in camel case, or as in EntroQ's messages (`at_ms`); whole numbers also texts, or with a
fraction or exponent (45000.0, 4.5e4). A field that is missing or null is empty. Fields that are not
known are left alone.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
from typing import Any, TypeAlias, TypeVar, get_args, get_type_hints

import msgspec

from queue_core.errors import InvalidRequestError
from work_queue.document import DocClaim
from work_queue.modification import Action, Delete, Depend
from work_queue.refs import TaskRef
from work_queue.service.marked import unmarked
from work_queue.service.protocol import DocData, DocName, Rules, TaskData, mode_of, named

Whole: TypeAlias = int | float | str | None
Text: TypeAlias = str | None
Enum: TypeAlias = int | str | None
"""0 is the default one; others are named."""
DIGITS = 19
NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?")

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
    mode: Enum = None

    def action(self, rules: Rules) -> Action:
        """What it does. Raises InvalidRequestError."""
        old = None if self.old_id is None else self.old_id.ref()
        new = None if self.new_data is None else self.new_data.data()
        return rules.change(old, new, mode_of(str(self.mode or "")))


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
    mode: Enum = None

    def action(self, rules: Rules) -> Action:
        """What it does. Raises InvalidRequestError."""
        old = None if self.old_id is None else self.old_id.name()
        new = None if self.new_data is None else self.new_data.data()
        return rules.change_doc(old, new, mode_of(str(self.mode or "")))


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
        return msgspec.convert(_renamed(msgspec.json.decode(body or b"{}"), kind), kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"the body can't be read: {error}. Nothing was written.", key="body"
        ) from error


def _renamed(given: Any, kind: type[msgspec.Struct]) -> Any:
    """A message whose names are in camel case; values and contents keep theirs.

    Raises ValueError if a field is named in both ways.
    """
    if isinstance(given, list):
        return [_renamed(one, kind) for one in given]
    if not isinstance(given, dict):
        return given
    fields, found = _fields(kind), dict[str, Any]()
    for name, value in given.items():
        known, inner = fields.get(name, (name, None))
        if known in found:
            raise ValueError(f"{known} is given twice")
        found[known] = value if inner is None else _renamed(value, inner)
    return found


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, tuple[str, type[_Message] | None]]:
    """Its fields by both of their names: the one in camel case, and which message they hold."""
    hints = get_type_hints(kind)
    return {
        name: (field.encode_name, _message_in(hints[field.name]))
        for field in msgspec.structs.fields(kind)
        for name in (field.name, field.encode_name)
    }


def _message_in(hint: Any) -> type[_Message] | None:
    if isinstance(hint, type) and issubclass(hint, _Message):
        return hint
    return next(filter(None, map(_message_in, get_args(hint))), None)


def whole(value: Whole, key: str) -> int:
    """A whole number, however it is written. Raises InvalidRequestError."""
    if value is None or isinstance(value, int):
        return value or 0
    text = str(value)
    if NUMBER.fullmatch(text):
        number = Decimal(text)
        if number.adjusted() < DIGITS and number == int(number):
            return int(number)
    raise InvalidRequestError(
        f"{key}={value!r:.80} is not allowed. Nothing was written. Allowed: an integer.",
        key=key,
        value=value,
    )

"""The messages and methods of EntroQ's gRPC services, of two generations, as tables.

A field is its number, its name and its type, with "*" if it is repeated. The types of messages are
names of this table, but for `Value`, which is google.protobuf's.
"""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """A field of a message."""

    number: int
    name: str
    kind: str
    repeated: bool = False


class Method(NamedTuple):
    """A method of a service."""

    name: str
    request: str
    answer: str
    streams: bool = False


Messages = dict[str, tuple[Field, ...]]


def _fields(*given: tuple[int, str, str]) -> tuple[Field, ...]:
    return tuple(
        Field(number, name, kind.removesuffix("*"), kind.endswith("*"))
        for number, name, kind in given
    )


ACTION_TYPES = ("CLAIM", "DELETE", "CHANGE", "DEPEND", "DETAIL", "INSERT", "READ")
"""The names of the enum `ActionType`, by number."""

MESSAGES: Messages = {
    "TaskID": _fields((1, "id", "string"), (2, "version", "int32"), (3, "queue", "string")),
    "TaskData": _fields(
        (1, "queue", "string"),
        (2, "at_ms", "int64"),
        (3, "value", "Value"),
        (4, "id", "string"),
        (5, "attempt", "int32"),
        (6, "err", "string"),
    ),
    "TaskChange": _fields((1, "old_id", "TaskID"), (2, "new_data", "TaskData")),
    "Task": _fields(
        (1, "queue", "string"),
        (2, "id", "string"),
        (3, "version", "int32"),
        (4, "at_ms", "int64"),
        (5, "claimant_id", "string"),
        (6, "value", "Value"),
        (7, "created_ms", "int64"),
        (8, "modified_ms", "int64"),
        (9, "claims", "int32"),
        (10, "attempt", "int32"),
        (11, "err", "string"),
    ),
    "QueueStats": _fields(
        (1, "name", "string"),
        (2, "num_tasks", "int32"),
        (3, "num_claimed", "int32"),
        (4, "num_available", "int32"),
        (5, "max_claims", "int32"),
        (6, "num_future", "int32"),
    ),
    "ClaimRequest": _fields(
        (1, "claimant_id", "string"),
        (2, "queues", "string*"),
        (3, "duration_ms", "int64"),
        (4, "poll_ms", "int64"),
    ),
    "ClaimResponse": _fields((1, "task", "Task")),
    "DocID": _fields((1, "namespace", "string"), (2, "id", "string"), (3, "version", "int32")),
    "DocData": _fields(
        (1, "namespace", "string"),
        (2, "id", "string"),
        (3, "key", "string"),
        (4, "secondary_key", "string"),
        (5, "content", "Value"),
        (6, "created_ms", "int64"),
        (7, "modified_ms", "int64"),
        (8, "at_ms", "int64"),
    ),
    "DocChange": _fields((1, "old_id", "DocID"), (2, "new_data", "DocData")),
    "Doc": _fields(
        (1, "namespace", "string"),
        (2, "id", "string"),
        (3, "version", "int32"),
        (4, "claimant", "string"),
        (5, "at_ms", "int64"),
        (6, "key", "string"),
        (7, "secondary_key", "string"),
        (8, "content", "Value"),
        (9, "created_ms", "int64"),
        (10, "modified_ms", "int64"),
    ),
    "DocQuery": _fields(
        (1, "namespace", "string"),
        (2, "key_start", "string"),
        (3, "key_end", "string"),
        (4, "limit", "int32"),
        (5, "omit_values", "bool"),
        (6, "ids", "string*"),
    ),
    "DocClaim": _fields(
        (1, "namespace", "string"),
        (2, "claimant", "string"),
        (3, "key", "string"),
        (4, "duration_ms", "int64"),
    ),
    "DocsRequest": _fields((1, "query", "DocQuery")),
    "DocsResponse": _fields((1, "docs", "Doc*")),
    "ClaimDocsRequest": _fields((1, "claim_query", "DocClaim")),
    "ClaimDocsResponse": _fields((1, "docs", "Doc*")),
    "NamespaceStat": _fields(
        (1, "name", "string"), (2, "num_docs", "int32"), (3, "num_claimed", "int32")
    ),
    "NamespacesRequest": _fields(
        (1, "match_prefix", "string*"), (2, "match_exact", "string*"), (3, "limit", "int32")
    ),
    "NamespacesResponse": _fields((1, "namespaces", "NamespaceStat*")),
    "ModifyRequest": _fields(
        (1, "claimant_id", "string"),
        (2, "inserts", "TaskData*"),
        (3, "changes", "TaskChange*"),
        (4, "deletes", "TaskID*"),
        (5, "depends", "TaskID*"),
        (6, "doc_inserts", "DocData*"),
        (7, "doc_changes", "DocChange*"),
        (8, "doc_deletes", "DocID*"),
        (9, "doc_depends", "DocID*"),
    ),
    "ModifyResponse": _fields(
        (1, "inserted", "Task*"),
        (2, "changed", "Task*"),
        (3, "inserted_docs", "Doc*"),
        (4, "changed_docs", "Doc*"),
    ),
    "ModifyDep": _fields(
        (1, "type", "ActionType"), (2, "id", "TaskID"), (3, "msg", "string"), (4, "doc_id", "DocID")
    ),
    "AuthzDep": _fields(
        (1, "actions", "ActionType*"),
        (2, "exact", "string"),
        (3, "prefix", "string"),
        (4, "msg", "string"),
    ),
    "TasksRequest": _fields(
        (1, "claimant_id", "string"),
        (2, "queue", "string"),
        (3, "limit", "int32"),
        (4, "task_id", "string*"),
        (5, "omit_values", "bool"),
    ),
    "TasksResponse": _fields((1, "tasks", "Task*")),
    "QueuesRequest": _fields(
        (1, "match_prefix", "string*"), (2, "match_exact", "string*"), (3, "limit", "int32")
    ),
    "QueuesResponse": _fields((1, "queues", "QueueStats*")),
    "TimeRequest": (),
    "TimeResponse": _fields((1, "time_ms", "int64")),
}

METHODS = (
    Method("TryClaim", "ClaimRequest", "ClaimResponse"),
    Method("Claim", "ClaimRequest", "ClaimResponse"),
    Method("Modify", "ModifyRequest", "ModifyResponse"),
    Method("Tasks", "TasksRequest", "TasksResponse"),
    Method("StreamTasks", "TasksRequest", "TasksResponse", streams=True),
    Method("Queues", "QueuesRequest", "QueuesResponse"),
    Method("QueueStats", "QueuesRequest", "QueuesResponse"),
    Method("Time", "TimeRequest", "TimeResponse"),
    Method("Docs", "DocsRequest", "DocsResponse"),
    Method("ClaimDocs", "ClaimDocsRequest", "ClaimDocsResponse"),
    Method("NamespaceStats", "NamespacesRequest", "NamespacesResponse"),
)


def _is_newer(kind: str) -> bool:
    """Whether the first generation lacks it: it has no docs."""
    return kind.startswith(("Doc", "Namespace", "ClaimDocs"))


def _legacy() -> Messages:
    """The messages of the first generation: its values are bytes, and nothing else is new."""
    return {
        message: tuple(
            field._replace(kind="bytes") if field.kind == "Value" else field
            for field in fields
            if not _is_newer(field.kind) and field.name != "num_future"
        )
        for message, fields in MESSAGES.items()
        if not _is_newer(message)
    }


LEGACY_MESSAGES = _legacy()
LEGACY_METHODS = tuple(method for method in METHODS if not _is_newer(method.request))

"""Errors as gRPC's statuses, with EntroQ's details."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import grpc

from queue_core.errors import (
    CommitUnknownError,
    DatabaseUnreachableError,
    InvalidPostError,
    InvalidRequestError,
    LifecycleError,
    PayloadNotSerialisableError,
    PayloadTooLargeError,
    StickybusError,
)
from work_queue.faults import DependencyError, Fault
from work_queue.refs import DocRef, TaskRef
from work_queue.service.rpc.descriptors import STATUS, Package
from work_queue.service.rpc.tables import ACTION_TYPES

DETAILS = "grpc-status-details-bin"
MAX_DETAILS_BYTES = 6_000
"""What details may take: callers refuse an answer with more than 8 kB of metadata."""
MAX_MESSAGE_LENGTH = 500

Code = grpc.StatusCode
_CODES: tuple[tuple[type[StickybusError], grpc.StatusCode], ...] = (
    (InvalidRequestError, Code.INVALID_ARGUMENT),
    (InvalidPostError, Code.INVALID_ARGUMENT),
    (PayloadNotSerialisableError, Code.INVALID_ARGUMENT),
    (PayloadTooLargeError, Code.INVALID_ARGUMENT),
    # What a COMMIT has done nobody knows: it is not safe to call again.
    (CommitUnknownError, Code.UNKNOWN),
    (DatabaseUnreachableError, Code.UNAVAILABLE),
    (LifecycleError, Code.UNAVAILABLE),
)


class Refusal(Exception):
    """A call that ends with a status.

    Attributes:
        code: The status.
        details: What goes with it, in a `google.rpc.Status`. Empty: nothing.
    """

    def __init__(self, code: grpc.StatusCode, message: str, details: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.details = details


def refusal(error: StickybusError, package: Package, *, what: str, protocol: str) -> Refusal:
    """The refusal of a call, `what`, that tells of an error."""
    if isinstance(error, DependencyError):
        code = Code.ABORTED if protocol == "2" else Code.NOT_FOUND
        told = f"{what} dependency error"
        return Refusal(code, told, _details(code, told, _dependencies(error, package)))
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Refusal(code, str(error)[:MAX_MESSAGE_LENGTH])
    return Refusal(Code.INTERNAL, str(error)[:MAX_MESSAGE_LENGTH])


def _details(code: grpc.StatusCode, message: str, items: Iterable[Any]) -> bytes:
    number: int = code.value[0]
    status = STATUS(code=number, message=message)
    for item in items:
        status.details.add().Pack(item)
        if status.ByteSize() > MAX_DETAILS_BYTES:
            del status.details[-1]
            break
    packed: bytes = status.SerializeToString()
    return packed


def _dependencies(error: DependencyError, package: Package) -> Iterator[Any]:
    item = package["ModifyDep"]
    yield item(type=ACTION_TYPES.index("DETAIL"), msg=str(error)[:MAX_MESSAGE_LENGTH])
    for fault in error.faults:
        yield item(type=ACTION_TYPES.index(fault.kind), **_named(fault))


def _named(fault: Fault) -> dict[str, object]:
    match fault.ref:
        case TaskRef() as ref:
            return {"id": {"id": ref.id, "version": ref.version, "queue": ref.queue}}
        case DocRef() as ref:
            return {"doc_id": {"namespace": ref.namespace, "id": ref.id, "version": ref.version}}
        case ref:
            # These callers know no names of doc sets.
            return {
                "doc_id": {"namespace": ref.namespace, "version": ref.version},
                "msg": f"doc set {ref.key!r}"[:MAX_MESSAGE_LENGTH],
            }

"""Errors as gRPC's statuses, with EntroQ's details."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
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
)
from work_queue.faults import DependencyError, Fault
from work_queue.refs import DocRef, TaskRef
from work_queue.rights import PermissionDeniedError, Right, UnauthenticatedError
from work_queue.service.protocol import UnsupportedRequestError
from work_queue.service.rpc.descriptors import STATUS, Package
from work_queue.service.rpc.tables import ACTION_TYPES, Method
from work_queue.service.unavailable import for_callers

DETAILS = "grpc-status-details-bin"
MAX_DETAILS_BYTES = 6_000
"""What details may take: callers refuse an answer with more than 8 kB of metadata."""
MAX_MESSAGE_LENGTH, MAX_MESSAGE_BYTES = 500, 1_500
"""Characters of one message at most, and its bytes where each that is not ASCII is sent as three.
"""

Code = grpc.StatusCode
_CODES: dict[type[Exception], grpc.StatusCode] = {
    InvalidRequestError: Code.INVALID_ARGUMENT,
    InvalidPostError: Code.INVALID_ARGUMENT,
    PayloadNotSerialisableError: Code.INVALID_ARGUMENT,
    PayloadTooLargeError: Code.INVALID_ARGUMENT,
    UnauthenticatedError: Code.UNAUTHENTICATED,
    UnsupportedRequestError: Code.UNIMPLEMENTED,
    # What a COMMIT has done nobody knows: it is not safe to call again.
    CommitUnknownError: Code.UNKNOWN,
    DatabaseUnreachableError: Code.UNAVAILABLE,
    LifecycleError: Code.UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a call ends that fails: its status, and details in a `google.rpc.Status`."""

    code: grpc.StatusCode
    message: str
    details: bytes = b""


FAILED = Ending(Code.INTERNAL, "the service failed. Its log says why.")


def ending(error: Exception, method: Method, package: Package, protocol: int) -> Ending:
    """How a call ends that raised an error."""
    error = for_callers(error)
    if isinstance(error, DependencyError):
        code = Code.NOT_FOUND if protocol == 1 else Code.ABORTED
        what = "claim docs" if method.name == "ClaimDocs" else "modification"
        return _detailed(code, f"{what} dependency error", _dependencies(error, package))
    if isinstance(error, PermissionDeniedError):
        return _detailed(Code.PERMISSION_DENIED, _told(error), _rights(error, package))
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return Ending(code, _told(error))
    return FAILED


def _told(error: Exception) -> str:
    text = str(error)[:MAX_MESSAGE_LENGTH]
    sizes = accumulate(1 if char.isascii() else 3 * len(char.encode()) for char in text)
    return text[: sum(size <= MAX_MESSAGE_BYTES for size in sizes)]


def _detailed(code: grpc.StatusCode, message: str, items: Iterable[Any]) -> Ending:
    number: int = code.value[0]
    status = STATUS(code=number, message=message)
    for item in items:
        status.details.add().Pack(item)
        if status.ByteSize() > MAX_DETAILS_BYTES:
            del status.details[-1]
            break
    return Ending(code, message, status.SerializeToString())


def _rights(error: PermissionDeniedError, package: Package) -> Iterator[Any]:
    for need in error.needs:
        # These callers know no right to act under a name.
        known = need.right is not Right.ACT
        yield package["AuthzDep"](
            actions=[ACTION_TYPES.index(need.right)] if known else [],
            **{"prefix" if need.prefix else "exact": need.name},
            msg=str(need)[:MAX_MESSAGE_LENGTH],
        )


def _dependencies(error: DependencyError, package: Package) -> Iterator[Any]:
    item = package["ModifyDep"]
    yield item(type=ACTION_TYPES.index("DETAIL"), msg=_told(error))
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

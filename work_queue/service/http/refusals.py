"""The answers to calls that are refused or fail."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException

from queue_core.errors import (
    DatabaseUnreachableError,
    InvalidPostError,
    InvalidRequestError,
    LifecycleError,
    PayloadError,
)
from queue_core.runtime.log import get_logger
from work_queue.faults import DependencyError, Fault
from work_queue.refs import DocRef, SetRef, TaskRef
from work_queue.rights import Need, PermissionDeniedError, Right, UnauthenticatedError
from work_queue.service.http.answers import Json, JsonAnswer
from work_queue.service.protocol import UnsupportedRequestError
from work_queue.service.unavailable import for_callers

log = get_logger(__name__)

CODES = {
    HTTPStatus.BAD_REQUEST: 3,
    HTTPStatus.NOT_FOUND: 5,
    HTTPStatus.FORBIDDEN: 7,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: 8,
    HTTPStatus.CONFLICT: 10,
    HTTPStatus.NOT_IMPLEMENTED: 12,
    HTTPStatus.INTERNAL_SERVER_ERROR: 13,
    HTTPStatus.SERVICE_UNAVAILABLE: 14,
    HTTPStatus.UNAUTHORIZED: 16,
}
"""The codes of gRPC that say the same."""
UNKNOWN = 2
TYPE = "type.googleapis.com/api."
STATUSES: dict[type[Exception], HTTPStatus] = {
    InvalidRequestError: HTTPStatus.BAD_REQUEST,
    InvalidPostError: HTTPStatus.BAD_REQUEST,
    PayloadError: HTTPStatus.BAD_REQUEST,
    UnauthenticatedError: HTTPStatus.UNAUTHORIZED,
    PermissionDeniedError: HTTPStatus.FORBIDDEN,
    UnsupportedRequestError: HTTPStatus.NOT_IMPLEMENTED,
    DatabaseUnreachableError: HTTPStatus.SERVICE_UNAVAILABLE,
    LifecycleError: HTTPStatus.SERVICE_UNAVAILABLE,
}


def refused(error: Exception, protocol: int) -> JsonAnswer:
    """The answer to a call that raised this."""
    error = for_callers(error)
    if isinstance(error, DependencyError):
        # Callers of protocol 1 know it by this status only.
        status = HTTPStatus.NOT_FOUND if protocol == 1 else HTTPStatus.CONFLICT
        return answer(status, str(error), _faults(error))
    if isinstance(error, HTTPException):
        return answer(HTTPStatus(error.status_code), error.detail, headers=error.headers)
    status = next(
        (found for kind, found in STATUSES.items() if isinstance(error, kind)),
        HTTPStatus.INTERNAL_SERVER_ERROR,
    )
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("call_failed", exc_info=error)
        return answer(status, "the service failed. Its log says why.")
    if status is HTTPStatus.UNAUTHORIZED:
        return answer(status, str(error), headers={"www-authenticate": "Bearer"})
    needs = error.needs if isinstance(error, PermissionDeniedError) else ()
    return answer(status, str(error), [_need(need) for need in needs])


def answer(
    status: HTTPStatus,
    message: str,
    details: Iterable[Json] = (),
    headers: Any = None,
) -> JsonAnswer:
    """A status, and the body that says why."""
    body = {"code": CODES.get(status, UNKNOWN), "message": message, "details": list(details)}
    return JsonAnswer(body, int(status), headers)


def _faults(error: DependencyError) -> list[Json]:
    told = {"@type": TYPE + "ModifyDep", "type": "DETAIL", "msg": str(error)}
    return [told, *(_fault(fault) for fault in error.faults)]


def _fault(fault: Fault) -> Json:
    named: Json = {"@type": TYPE + "ModifyDep", "type": fault.kind.value}
    match fault.ref:
        case TaskRef(id=id_, version=version, queue=queue):
            return {**named, "id": {"id": id_, "version": version, "queue": queue}}
        case DocRef(namespace=namespace, id=id_, version=version):
            return {**named, "docId": {"namespace": namespace, "id": id_, "version": version}}
        case SetRef(namespace=namespace, key=key, version=version):
            return {**named, "docId": {"namespace": namespace, "key": key, "version": version}}


def _need(need: Need) -> Json:
    """A right that is missing. Old callers know no action for acting as a claimant."""
    return {
        "@type": TYPE + "AuthzDep",
        "actions": [] if need.right is Right.ACT else [need.right.value],
        "prefix" if need.prefix else "exact": need.name,
        "msg": str(need),
    }

"""Rights as an Open Policy Agent (OPA) says.

It is asked as EntroQ asks: for `data.entroq.authz`, with the caller's token, the claimant, and the
queues and namespaces with the actions that are wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import httpx
import msgspec

from queue_core.errors import DatabaseUnreachableError
from work_queue.rights import Kind, Need, Right, UnauthenticatedError, denial
from work_queue.service.caller import Caller

PATH = "/v1/data/entroq/authz"
TIMEOUT_SECONDS = 5.0
"""How long an answer of the agent may take."""


class _Asked(msgspec.Struct, frozen=True):
    """One queue or namespace of a question or an answer."""

    actions: tuple[str, ...] = ()
    exact: str = ""
    prefix: str = ""


class _Result(msgspec.Struct, frozen=True):
    allow: bool = False
    failed: tuple[_Asked, ...] = ()
    failed_namespaces: tuple[_Asked, ...] = ()
    errors: tuple[str, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    """An agent that has no such policy, as before it is loaded, gives no result."""

    result: _Result


class OpenPolicyAgent:
    """Asks an agent at each call. A call that it does not clearly allow is refused.

    Without a decision the call may be tried again: workers go on when the agent is back.

    Args:
        url: Where it listens, such as http://localhost:8181.
        path: The decision's path.
        timeout_seconds: How long its answer may take.
    """

    def __init__(
        self, url: str, *, path: str = PATH, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._url = url.rstrip("/") + path
        # Certificates of authorities are read only for an agent that needs them.
        self._client = httpx.AsyncClient(timeout=timeout_seconds, verify=url.startswith("https:"))

    async def allow(self, caller: Caller, needs: Sequence[Need]) -> str | None:
        """See `Authoriser`. A caller has the name of its certificate, and no other."""
        if caller.token is None and caller.subject is None:
            raise UnauthenticatedError(
                "the service does not know the caller. Nothing was read or written. Send a bearer "
                "token, or a client certificate."
            )
        result = await self._ask(_question(caller, needs))
        if not result.allow:
            missing = _missing(needs, result)
            raise denial(f"the caller ({'; '.join(result.errors) or 'as OPA says'})", missing)
        return caller.subject

    async def close(self) -> None:
        """See `Authoriser`."""
        await self._client.aclose()

    async def _ask(self, question: dict[str, Any]) -> _Result:
        try:
            response = await self._client.post(self._url, json={"input": question})
            response.raise_for_status()
            return msgspec.json.decode(response.content, type=_Answer).result
        except (httpx.HTTPError, msgspec.MsgspecError) as error:
            raise DatabaseUnreachableError(
                f"the policy agent gave no decision ({type(error).__name__}). Nothing was read or "
                "written. Try again when it runs."
            ) from error


def _question(caller: Caller, needs: Sequence[Need]) -> dict[str, Any]:
    claimants = [need.name for need in needs if need.right is Right.ACT]
    question: dict[str, Any] = {
        "claimant_id": "".join(claimants),
        "queues": _asked(needs, Kind.QUEUE),
        "namespaces": _asked(needs, Kind.NAMESPACE),
    }
    if caller.token is not None:
        question["authz"] = {"type": "Bearer", "credentials": caller.token}
    if caller.subject is not None:
        question["principal"] = {"subject": caller.subject}
    return question


def _asked(needs: Iterable[Need], kind: Kind) -> list[dict[str, Any]]:
    """The needs of a kind, together by what they are about."""
    actions = dict[tuple[str, str], list[str]]()
    for need in needs:
        if need.kind is kind:
            about = "prefix" if need.prefix else "exact", need.name
            actions.setdefault(about, []).append(_action(need))
    return [
        {how: name, "actions": list(dict.fromkeys(found))} for (how, name), found in actions.items()
    ]


def _action(need: Need) -> str:
    """Policies that were written for EntroQ know no DEPEND: who depends reads."""
    return (Right.READ if need.right is Right.DEPEND else need.right).value


def _missing(needs: Sequence[Need], result: _Result) -> list[Need]:
    """What the answer names of the needs; all of them if it names none."""
    failed = {Kind.QUEUE: result.failed, Kind.NAMESPACE: result.failed_namespaces}
    found = [
        need
        for need in needs
        for asked in failed.get(need.kind, ())
        if (asked.prefix if need.prefix else asked.exact) == need.name
        and _action(need) in asked.actions
    ]
    return found or list(needs)

"""Services that run in a thread of the tests' process, and raw calls of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from tests.contract.harness import BOUND_SECONDS
from tests.contract.work_queue.backends import waiting
from work_queue.service.authoriser import Authoriser
from work_queue.service.calls import Calls
from work_queue.service.http.server import HttpListener
from work_queue.service.service import Service
from work_queue.work_queue import WorkQueue

Json = dict[str, Any]
OLD: dict[str, str] = {}
"""The headers of callers of protocol 1."""
NEW = {"entroq-protocol": "2"}


class Running:
    """A service on a free port. `call` calls it raw, by protocol 2."""

    def __init__(
        self,
        work: WorkQueue,
        *,
        authoriser: Authoriser | None = None,
        registry: CollectorRegistry | None = None,
        **options: Any,
    ) -> None:
        self.work = work
        self.calls = Calls(work, authoriser, registry)
        self._service = Service(self.calls, [HttpListener(self.calls, **options)])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.addresses = self._run(self._service.start())
        self.url = self.addresses[0]
        self.client = httpx.Client(timeout=BOUND_SECONDS)

    def _run(self, call: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(BOUND_SECONDS)

    def call(
        self, path: str, body: Any = None, *, headers: dict[str, str] = NEW, **query: Any
    ) -> httpx.Response:
        """Call a path below the base: POST if there is a body, else GET."""
        method = "GET" if body is None else "POST"
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        request = httpx.Request(
            method,
            f"{self.url}/api/v0{path}",
            params=query,
            headers=headers,
            **({} if body is None else content),
        )
        return self.client.send(request)

    def answer(self, path: str, body: Any = None, **options: Any) -> Json:
        """What a call answers that has to succeed."""
        response = self.call(path, body, **options)
        assert response.status_code == 200, response.text
        found: Json = response.json()
        return found

    def refusal(self, status: int, path: str, body: Any = None, **options: Any) -> Json:
        """What a call answers that has to be refused."""
        response = self.call(path, body, **options)
        assert response.status_code == status, response.text
        found: Json = response.json()
        assert set(found) == {"code", "message", "details"}
        return found

    def modify(self, claimant: str = "me", **parts: Any) -> Json:
        """Modify, which has to succeed."""
        return self.answer("/modify", {"claimantId": claimant, **parts})

    def claim(self, *queues: str, claimant: str = "me", **options: Any) -> Json | None:
        """Claim what is there."""
        body = {"claimantId": claimant, "queues": list(queues), "durationMs": "45000", **options}
        found: Json | None = self.answer("/claim", body)["task"]
        return found

    @property
    def waiting(self) -> int:
        """How many claims wait, and have looked."""
        return waiting(self.work)

    def stop(self) -> None:
        """Stop it as a signal does."""
        self._run(self._service.stop())

    def close(self) -> None:
        """Stop it, and end its thread."""
        self.client.close()
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(BOUND_SECONDS)
        self._loop.close()


def types_of(refusal: Json) -> Sequence[str]:
    """What is at fault in a refusal, but for its text."""
    return [detail["type"] for detail in refusal["details"] if detail["type"] != "DETAIL"]


def task_id(task: Json, **changes: Any) -> Json:
    """How a request names a task."""
    return {"id": task["id"], "version": task["version"], "queue": task["queue"], **changes}


def waiting_claim(*queues: str, claimant: str = "me") -> Json:
    return {
        "claimantId": claimant,
        "queues": list(queues),
        "durationMs": "60000",
        "pollMs": "60000",
    }

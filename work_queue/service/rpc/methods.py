"""The methods of EntroQ's service, for one generation of its callers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from work_queue.document import DocClaim, DocSet
from work_queue.modified import Modified
from work_queue.service.caller import Caller
from work_queue.service.calls import Calls
from work_queue.service.protocol import Rules, UnsupportedRequestError
from work_queue.service.rpc import answers, requests
from work_queue.service.rpc.generations import Generation
from work_queue.task import Task

Answer: TypeAlias = Callable[[Caller, Any, Rules], Awaitable[Any]]
Claimed: TypeAlias = tuple[Sequence[Task] | Sequence[DocSet], Callable[[], Any]]
"""What was claimed, and what makes the answer of it: if that fails, it is given back."""
Claim: TypeAlias = Callable[[Caller, Any, Rules], Awaitable[Claimed]]


class Methods:
    """Takes messages, and returns messages."""

    def __init__(self, calls: Calls, generation: Generation) -> None:
        self._calls = calls
        self._generation = generation
        self.answers: dict[str, Answer] = {
            "Modify": self._modify,
            "Tasks": self._tasks,
            "Queues": self._queues,
            "QueueStats": self._queues,
            "Time": self._time,
            "Docs": self._docs,
            "NamespaceStats": self._namespaces,
        }
        """The methods that return their one answer, by name."""
        self.claims: dict[str, Claim] = {
            "TryClaim": partial(self._claim, timeout_seconds=0),
            "Claim": partial(self._claim, timeout_seconds=None),
            "ClaimDocs": self._claim_docs,
        }
        """The methods that claim, by name."""

    async def _claim(
        self, caller: Caller, request: Any, rules: Rules, *, timeout_seconds: float | None
    ) -> Claimed:
        tasks = await self._calls.claim(
            caller,
            request.queues,
            claimant=self._generation.name(request.claimant_id),
            lease_seconds=rules.lease_seconds(request.duration_ms),
            timeout_seconds=timeout_seconds,
        )
        for task in tasks:
            if not self._generation.can_name(task):
                await self._calls.give_back(tasks)
                raise UnsupportedRequestError(
                    f"task {task.id!r} of queue {task.queue!r} has an id that is no UUID in small "
                    "letters, so callers of this service can't name it. It was not claimed. Let a "
                    "newer caller take it."
                )
        return tasks, lambda: answers.claimed(tasks, self._generation)

    async def pages(self, caller: Caller, request: Any) -> AsyncGenerator[list[Task], None]:
        """Read tasks page by page."""
        query = requests.task_query(request, self._generation)
        async with aclosing(self._calls.pages(caller, query)) as pages:
            async for page in pages:
                yield self._named(page)

    def _named(self, tasks: list[Task]) -> list[Task]:
        """Those that a caller can name: it could do nothing with the others, or read none."""
        return [task for task in tasks if self._generation.can_name(task)]

    async def _modify(self, caller: Caller, request: Any, rules: Rules) -> Any:
        if requests.is_dated(request):
            rules = replace(rules, now=await self._calls.time(caller))
        actions = requests.actions(request, self._generation, rules)
        modified = Modified()
        if actions or rules.protocol != 1:
            claimant = self._generation.name(request.claimant_id)
            modified = await self._calls.modify(caller, actions, claimant=claimant)
        return answers.modified(modified, self._generation)

    async def _tasks(self, caller: Caller, request: Any, rules: Rules) -> Any:
        del rules
        query = requests.task_query(request, self._generation)
        found = await self._calls.tasks(caller, query)
        return answers.tasks(self._named(found), self._generation)

    async def _queues(self, caller: Caller, request: Any, rules: Rules) -> Any:
        del rules
        query = requests.name_query(request)
        return answers.queues(await self._calls.queue_stats(caller, query), self._generation)

    async def _time(self, caller: Caller, request: Any, rules: Rules) -> Any:
        del request, rules
        return answers.time(await self._calls.time(caller), self._generation)

    async def _docs(self, caller: Caller, request: Any, rules: Rules) -> Any:
        del rules
        query = requests.doc_query(request.query)
        return answers.docs(await self._calls.docs(caller, query), "DocsResponse")

    async def _claim_docs(self, caller: Caller, request: Any, rules: Rules) -> Claimed:
        claim = request.claim_query
        sets = await self._calls.claim_docs(
            caller,
            [DocClaim(claim.namespace, claim.key)],
            claimant=claim.claimant,
            lease_seconds=rules.lease_seconds(claim.duration_ms),
            until=None,
        )
        return sets, lambda: answers.docs(sets[0].docs, "ClaimDocsResponse")

    async def _namespaces(self, caller: Caller, request: Any, rules: Rules) -> Any:
        del rules
        query = requests.name_query(request)
        return answers.namespaces(await self._calls.namespace_stats(caller, query))

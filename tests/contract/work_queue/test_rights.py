"""Rights of clients on history and replays: each is asked; who is refused writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from queue_core.errors import InvalidRequestError
from tests import requirements as needs
from tests.contract.work_queue.backends import line_of
from tests.contract.work_queue.services import Services
from work_queue.modification import Insert
from work_queue.requests import ClaimRequest
from work_queue.rights import Kind, Need, PermissionDeniedError, Right, UnauthenticatedError
from work_queue.service.authorisers.policy import PolicyFile
from work_queue.values import UNREAD
from work_queue.wire import calls as wire
from work_queue.work_queue import WorkQueue

pytestmark = [
    pytest.mark.parametrize("place", ["http", "grpc"], indirect=True),
    needs.any_database,
]
TOKEN = "secret"
EVERY_QUEUE = [""]

Call = Callable[[WorkQueue], Any]
CALLS: dict[str, tuple[Call, list[tuple[Right, str]]]] = {
    "keep_history": (lambda work: work.keep_history("new"), [(Right.CHANGE, "new")]),
    "keep_history no more": (
        lambda work: work.keep_history("a", keep=False),
        [(Right.CHANGE, "a")],
    ),
    "histories": (lambda work: work.histories(), [(Right.READ, "")]),
    "limit": (lambda work: work.limit("new", concurrency=1), [(Right.CHANGE, "new")]),
    "unlimit": (lambda work: work.unlimit("a"), [(Right.CHANGE, "a")]),
    "limits": (lambda work: work.limits(), [(Right.READ, "")]),
    "limits of a queue": (lambda work: work.limits("a"), [(Right.READ, "a")]),
    "recur": (
        lambda work: work.recur("new", "daily", every=60),
        [(Right.CHANGE, "new"), (Right.INSERT, "new")],
    ),
    "stop_recurring": (lambda work: work.stop_recurring("a", "daily"), [(Right.CHANGE, "a")]),
    "recurring": (lambda work: work.recurring(), [(Right.READ, "")]),
    "recurring of a queue": (lambda work: work.recurring("a"), [(Right.READ, "a")]),
    "finished_tasks of a queue": (lambda work: work.finished_tasks("a"), [(Right.READ, "a")]),
    "finished_tasks by ids": (
        lambda work: work.finished_tasks(ids=["of a", "of b"]),
        [(Right.READ, "a"), (Right.READ, "b")],
    ),
    "truncate_history": (lambda work: work.truncate_history("a"), [(Right.DELETE, "a")]),
    "failed_tasks": (lambda work: work.failed_tasks("a/err"), [(Right.READ, "a/err")]),
    "replay_failed": (
        lambda work: work.replay_failed("a/err"),
        [(Right.READ, "a/err"), (Right.CHANGE, "a/err"), (Right.INSERT, "a")],
    ),
    "replay_failed to a queue": (
        lambda work: work.replay_failed("a/err", to="b"),
        [(Right.READ, "a/err"), (Right.CHANGE, "a/err"), (Right.INSERT, "b")],
    ),
    "replay_failed as a dry run": (
        lambda work: work.replay_failed("a/err", dry_run=True),
        [(Right.READ, "a/err")],
    ),
}
"""Each call, and the rights that it needs; an empty name: of all queues."""


@dataclass(frozen=True)
class Guarded:
    """A service that asks a policy, its client, and the work queue behind it."""

    served: WorkQueue
    client: WorkQueue
    policy: Path

    def allow(self, rights: list[tuple[Right, str]], but: Right | None = None) -> None:
        """Let the caller do this, and with all queues everything else `but` one right."""
        given: list[Any] = [
            {"actions": [right], "queues" if name else "queue_prefixes": [name]}
            for right, name in rights
        ]
        if but is not None:
            others = [right for right in Right if right not in {but, Right.ACT}]
            given.append({"actions": others, "queue_prefixes": EVERY_QUEUE})
        digest = sha256(TOKEN.encode()).hexdigest()
        ann = {"name": "ann", "token_sha256": [digest], "rights": given}
        self.policy.write_text(json.dumps({"callers": [ann]}))

    def state(self) -> object:
        """All that a call could have changed."""
        queues = ("a", "b", "a/err")
        return (
            self.served.histories(),
            self.served.limits(),
            [self.served.finished_tasks(queue) for queue in queues],
            [self.served.tasks(queue) for queue in queues],
        )


@pytest.fixture
def guarded(place: str, services: Services, database_url: URL, tmp_path: Path) -> Iterator[Guarded]:
    """Two queues with a finished task each, and an error queue with a failed one."""
    policy = tmp_path / "policy.json"
    policy.write_text('{"callers": []}')
    with WorkQueue(database_url) as served:
        for queue in ("a", "b"):
            served.keep_history(queue)
            served.modify(served.insert(queue, id=f"of {queue}").delete())
        served.modify(served.insert("a").change(queue="a/err", err="it broke", attempt=1))
        address = getattr(services, place)(served, PolicyFile(policy))
        with pytest.raises(UnauthenticatedError):
            WorkQueue(address, token=TOKEN)
        Guarded(served, served, policy).allow([])
        with WorkQueue(address, token=TOKEN, claimant="ann") as client:
            yield Guarded(served, client, policy)


def test_who_acts_as_another_claimant_is_told_its_own_names(guarded: Guarded) -> None:
    with pytest.raises(PermissionDeniedError) as refused:
        guarded.client.try_claim("a", claimant="bob")
    message = str(refused.value)
    assert "lacks rights: to act as claimant 'bob', CLAIM of queue 'a'." in message
    assert "Pass claimant='ann', or one that begins with 'ann#'." in message
    with pytest.raises(PermissionDeniedError, match=r"written\. Ask the keeper of the service"):
        guarded.client.try_claim("a")


@pytest.mark.parametrize("name", CALLS)
def test_each_call_needs_its_rights_and_who_is_refused_writes_nothing(
    guarded: Guarded, name: str
) -> None:
    call, needed = CALLS[name]
    before = guarded.state()
    for right, queue in needed:
        guarded.allow([one for one in needed if one != (right, queue)], but=right)
        with pytest.raises(PermissionDeniedError) as caught:
            call(guarded.client)
        assert caught.value.needs == (Need(right, Kind.QUEUE, queue, prefix=not queue),)
        assert guarded.state() == before
    guarded.policy.write_text('{"callers": []}')
    with pytest.raises(UnauthenticatedError):
        call(guarded.client)
    assert guarded.state() == before
    guarded.allow(needed)
    call(guarded.client)


def test_the_history_of_all_queues_is_deleted_by_who_may_read_and_delete_all_of_them(
    guarded: Guarded,
) -> None:
    before = guarded.state()
    guarded.allow([(Right.DELETE, "")])
    with pytest.raises(PermissionDeniedError):
        guarded.client.truncate_history()
    assert guarded.state() == before
    guarded.allow([(Right.READ, ""), (Right.DELETE, "a")])
    with pytest.raises(PermissionDeniedError) as caught:
        guarded.client.truncate_history()
    assert caught.value.needs == (Need(Right.DELETE, Kind.QUEUE, "b"),)
    assert (guarded.served.finished_tasks("a"), len(guarded.served.finished_tasks("b"))) == ([], 1)
    guarded.allow([(Right.READ, ""), (Right.DELETE, "")])
    assert guarded.client.truncate_history() == 1


def test_who_inserts_is_told_of_a_task_that_is_there_only_what_it_may_read(
    guarded: Guarded,
) -> None:
    inserted = Insert(queue="b", value="a secret", id="theirs", attempt=1, err="a secret, too")
    [theirs] = guarded.served.modify(inserted).inserted
    claimed = guarded.served.try_claim("b", claimant="them")
    assert claimed is not None
    insert = Insert(queue="a", id="theirs", skip_existing=True)
    guarded.allow([(Right.INSERT, "a")])
    [told] = guarded.client.modify(insert, Insert(queue="a", id="new")).existing
    assert told.ref == claimed.ref
    assert (told.value, told.err, told.claimant) == (UNREAD, "", "")
    assert guarded.served.tasks(ids=["new"])
    guarded.allow([(Right.INSERT, "a"), (Right.READ, "b")])
    assert guarded.client.modify(insert).existing == (claimed,)
    assert theirs.value == claimed.value


def test_a_limit_is_by_the_caller_whatever_it_says(guarded: Guarded) -> None:
    guarded.allow([(Right.CHANGE, "a")])
    assert guarded.client.limit("a", concurrency=1, by="somebody else").limited_by == "ann"


def test_who_is_not_known_leaves_no_ticket(guarded: Guarded) -> None:
    line, leave = line_of(guarded.client), wire.Leave("ticket")
    assert line.call(wire.LEAVE, leave)
    guarded.policy.write_text('{"callers": []}')
    with pytest.raises(UnauthenticatedError):
        line.call(wire.LEAVE, leave)


def test_a_long_ticket_is_refused(guarded: Guarded) -> None:
    guarded.allow([(Right.CLAIM, "a")])
    guarded.served.insert("a")
    line, claim = line_of(guarded.client), ClaimRequest("ann", ("a",), 60.0)
    for ticket, allowed in (("x" * 64, True), ("x" * 65, False)):
        for ask in (
            partial(line.call, wire.CLAIM, wire.Claim(claim, 0.0, ticket)),
            partial(line.call, wire.LEAVE, wire.Leave(ticket)),
        ):
            if allowed:
                assert ask()
                continue
            with pytest.raises(InvalidRequestError, match="ticket"):
                ask()

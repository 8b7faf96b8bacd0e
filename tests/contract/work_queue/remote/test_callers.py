"""Work queues at a service's address: who calls, by tokens or certificates."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import URL

from queue_core.errors import ConfigurationError, DatabaseUnreachableError
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.service.certificates import Certificates
from tests.contract.service.http.agents import Agent, agent_at
from tests.contract.work_queue.backends import own_backend_of
from tests.contract.work_queue.services import Services
from work_queue.modification import Insert
from work_queue.remote.tls import Tls
from work_queue.rights import PermissionDeniedError, UnauthenticatedError
from work_queue.service.authorisers.opa import OpenPolicyAgent
from work_queue.service.authorisers.policy import PolicyFile
from work_queue.work_queue import WorkQueue
from work_queue.workers.worker import Worker

pytestmark = pytest.mark.parametrize("place", ["http", "grpc"], indirect=True)


def policy(folder: Path) -> PolicyFile:
    path = folder / "policy.toml"
    path.write_text(
        f"""
        [[callers]]
        name = "ann"
        token_sha256 = ["{sha256(b"secret").hexdigest()}"]
        [[callers.rights]]
        actions = ["CLAIM", "INSERT", "READ", "DELETE", "CHANGE"]
        queues = ["a"]
        queue_prefixes = ["a/"]
        """
    )
    return PolicyFile(path)


def test_a_token_tells_who_calls(
    place: str,
    services: Services,
    database_url: URL,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with WorkQueue(database_url) as served:
        address = getattr(services, place)(served, policy(tmp_path))
        with pytest.raises(UnauthenticatedError):
            WorkQueue(address)
        with WorkQueue(address, token="secret", claimant="ann") as work:
            work.insert("a", 1)
            Worker(work, lambda _job: Insert(queue="a/done"), "a").run(limit=1)
            assert len(work.tasks("a/done")) == 1
            with pytest.raises(PermissionDeniedError) as caught:
                work.insert("b")
            assert [(need.right, need.name) for need in caught.value.needs] == [("INSERT", "b")]
            assert "secret" not in repr(vars(own_backend_of(work))) + str(caught.value)
        monkeypatch.setenv("STICKYBUS_TOKEN", "secret")
        WorkQueue(address).close()


def test_certificates_tell_who_serves_and_who_calls(
    place: str, services: Services, database_url: URL, tmp_path: Path
) -> None:
    signed = Certificates(tmp_path)
    certificate, key = signed.of("client")
    with WorkQueue(database_url) as served:
        address = services.encrypted(place, served, signed)
        for tls in (None, Tls(ca_file=signed.authority)):
            with pytest.raises(DatabaseUnreachableError):
                WorkQueue(address, tls=tls)
        own = Tls(ca_file=signed.authority, certificate_file=certificate, key_file=key)
        with WorkQueue(address, tls=own) as work:
            assert work.insert("a").queue == "a"
        with pytest.raises(ConfigurationError, match="can't be used"):
            WorkQueue(address, tls=Tls(ca_file=tmp_path / "none.pem"))


def test_a_worker_outlives_an_outage_of_the_policy_agent(
    place: str, services: Services, database_url: URL
) -> None:
    agent = Agent()
    with agent_at(agent) as url, WorkQueue(database_url) as served:
        address = getattr(services, place)(served, OpenPolicyAgent(url))
        with WorkQueue(address, token="secret") as work:
            agent.status = 500
            with pytest.raises(DatabaseUnreachableError, match="no decision"):
                work.insert("a")
            served.insert("a")
            worker = Worker(work, lambda _job: None, "a")
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(worker.run, limit=1)
                asked = len(agent.asked)
                eventually(lambda: len(agent.asked) > asked + 1)
                agent.status = 200
                running.result(BOUND_SECONDS)
            assert work.tasks("a") == []

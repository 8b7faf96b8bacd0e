"""The service as a server: certificates, metrics, health, databases that are away."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from queue_core.errors import CommitUnknownError, ConfigurationError, DatabaseUnreachableError
from tests.contract.harness import BOUND_SECONDS
from tests.contract.service.certificates import NO_NAME, Certificates, common_name
from tests.contract.service.http.conftest import Serve
from tests.contract.service.http.rights import bearer
from tests.contract.service.http.running import NEW, Running, task_id
from work_queue.service.authorisers.policy import PolicyFile
from work_queue.service.tls import Tls


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def calls_over_tls(
    service: Running,
    certificates: Certificates,
    client: tuple[Path, Path] | None = None,
    headers: dict[str, str] = NEW,
) -> httpx.Response:
    context = ssl.create_default_context(cafile=certificates.authority)
    if client is not None:
        context.load_cert_chain(*client)
    with httpx.Client(verify=context, timeout=BOUND_SECONDS) as caller:
        return caller.get(f"{service.url}/api/v0/queues", headers=headers)


def test_calls_over_tls(serve: Serve, certificates: Certificates) -> None:
    service = serve(tls=Tls(*certificates.of("localhost")))
    assert service.url.startswith("https://127.0.0.1:")
    assert calls_over_tls(service, certificates).json() == {"queues": []}
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(service.url.replace("https", "http"), timeout=BOUND_SECONDS)


def test_callers_are_known_by_their_certificates(
    serve: Serve, certificates: Certificates, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        """
        [[callers]]
        name = "ann"
        subjects = ["ann.example"]
        rights = [{ actions = ["READ"], queue_prefixes = [""] }]
        """
    )
    service = serve(
        tls=Tls(*certificates.of("localhost"), certificates.authority),
        authoriser=PolicyFile(policy),
    )
    ann, bob = certificates.of("ann.example"), certificates.of("bob.example")
    assert calls_over_tls(service, certificates, ann).status_code == 200
    assert calls_over_tls(service, certificates, bob).status_code == 401
    empty = {**NEW, "authorization": "Bearer"}
    assert calls_over_tls(service, certificates, ann, empty).status_code == 200
    assert calls_over_tls(service, certificates, ann, bearer("other")).status_code == 401
    for first, rest, known in (
        ("ann.example", common_name("bob.example"), False),
        ("bob.example", common_name("ann.example"), False),
        ("ann.example", NO_NAME, True),
    ):
        answer = calls_over_tls(service, certificates, certificates.of(first, rest))
        assert answer.status_code == (200 if known else 401)
    with pytest.raises(httpx.TransportError):
        calls_over_tls(service, certificates)
    others = Certificates(tmp_path / "others")
    with pytest.raises(httpx.TransportError):
        calls_over_tls(service, certificates, others.of("ann.example"))


def test_certificates_that_can_t_be_used(
    serve: Serve, certificates: Certificates, tmp_path: Path
) -> None:
    certificate, key = certificates.of("localhost")
    with pytest.raises(ConfigurationError, match="can't be read"):
        Tls(certificate, tmp_path / "nothing.pem")
    with pytest.raises(ConfigurationError, match="can't be used"):
        serve(tls=Tls(key, certificate))


def test_a_port_that_is_taken_is_told(service: Running, serve: Serve) -> None:
    port = int(service.url.rsplit(":", 1)[1])
    with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port}: Address already in use"):
        serve(port=port)


def metric(service: Running, sample: str) -> float | None:
    lines = httpx.get(f"{service.url}/metrics", timeout=BOUND_SECONDS).text.splitlines()
    values = [line.removeprefix(sample) for line in lines if line.startswith(sample + " ")]
    return float(values[0]) if values else None


def test_calls_are_counted_by_what_became_of_them(service: Running) -> None:
    [task] = service.modify(inserts=[{"queue": "a"}])["inserted"]
    service.claim("a")
    service.claim("b")
    service.refusal(400, "/claim", {"claimantId": "", "queues": ["a"]})
    stale = {"claimantId": "me", "deletes": [task_id(task)]}
    service.refusal(409, "/modify", stale)

    def calls(method: str, outcome: str) -> float | None:
        labels = f'{{method="{method}",outcome="{outcome}"}}'
        return metric(service, f"stickybus_work_calls_total{labels}")

    assert calls("claim", "done") == 2
    assert calls("claim", "invalid") == 1
    assert calls("modify", "done") == 1
    assert calls("modify", "dependency") == 1
    assert metric(service, 'stickybus_work_call_seconds_count{method="claim"}') == 3
    assert metric(service, "stickybus_work_claims_waiting") == 0


def test_metrics_tell_what_queues_have(service: Running) -> None:
    service.modify(inserts=[{"queue": 'a"b', "byMs": 60_000}, {"queue": 'a"b'}, {"queue": 'a"b'}])
    service.claim('a"b')
    for state in ("available", "claimed", "future"):
        labels = f'{{queue_name="a\\"b",state="{state}"}}'
        assert metric(service, f"stickybus_tasks{labels}") == 1
    assert metric(service, 'stickybus_database_up{table="work_tasks"}') == 1
    assert metric(service, "process_open_fds")


def test_health_is_that_of_the_database(service: Running) -> None:
    response = httpx.get(f"{service.url}/health", timeout=BOUND_SECONDS)
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    "error",
    [
        DatabaseUnreachableError("secret", url="secret"),
        CommitUnknownError("secret", url="secret"),
        OperationalError("SELECT secret", {}, Exception("gone")),
        InterfaceError("SELECT secret", {}, Exception("gone")),
        PoolTimeoutError("none is free"),
    ],
)
def test_a_database_that_does_not_answer_is_told_without_its_address(
    service: Running,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr(service.work, "time", fails)
    refusal = service.refusal(503, "/time")
    assert refusal["code"] == 14
    assert "secret" not in refusal["message"]
    labels = '{method="time",outcome="unavailable"}'
    assert metric(service, f"stickybus_work_calls_total{labels}") == 1
    health = httpx.get(f"{service.url}/health", timeout=BOUND_SECONDS)
    assert health.status_code == 503
    assert "secret" not in health.text
    assert "database_unavailable" in caplog.text


def test_a_failure_of_the_service_is_logged_and_not_told(
    service: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(service.work, "time", fails)
    assert "secret" not in str(service.refusal(500, "/time"))
    assert "call_failed" in caplog.text

"""Work queues at a service's address, behind a proxy that the environment names."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import URL

from queue_core.errors import ConfigurationError, DatabaseUnreachableError
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.service.certificates import Certificates
from tests.contract.work_queue.backends import own_backend_of, waiting
from tests.contract.work_queue.services import Services
from work_queue.remote.address import address_of
from work_queue.remote.http_connections import HttpConnections
from work_queue.remote.tls import Tls
from work_queue.remote.transport import LostError
from work_queue.requests import ClaimRequest
from work_queue.wire import calls as wire
from work_queue.work_queue import WorkQueue

pytestmark = pytest.mark.parametrize("place", ["http"], indirect=True)


class ForwardProxy:
    """Sends all that it gets to one server, and keeps it; what asks for a tunnel, not."""

    def __init__(
        self, host: str, port: int, *, tunnels: bool = False, tls: ssl.SSLContext | None = None
    ) -> None:
        self._there = (host, port)
        self._tunnels = tunnels
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.got = bytearray()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                if self._tls is not None:
                    near = self._tls.wrap_socket(near, server_side=True)
                far = socket.create_connection(self._there)
                threading.Thread(target=self._ask, args=(near, far), daemon=True).start()
                threading.Thread(target=self._answer, args=(far, near), daemon=True).start()

    def _ask(self, near: socket.socket, far: socket.socket) -> None:
        origin = "http://{}:{}".format(*self._there).encode()
        with suppress(OSError), near, far:
            if self._tunnels:
                while not self.got.endswith(b"\r\n\r\n"):
                    self.got += near.recv(1)
                near.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while data := near.recv(65_536):
                self.got += data
                far.sendall(data.replace(origin, b""))

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError), near, far:
            while data := far.recv(65_536):
                near.sendall(data)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def proxy(work: WorkQueue) -> Iterator[ForwardProxy]:
    address = own_backend_of(work).address
    forward = ForwardProxy(address.host, address.port)
    yield forward
    forward.close()


def test_calls_go_through_it(
    work: WorkQueue, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(own_backend_of(work).address)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", f"http://ann:s%20cr%E2%82%ACt@127.0.0.1:{proxy.port}")
    with WorkQueue(address) as near:
        near.insert("a")
    assert work.queues() == {"a": 1}
    assert bytes(proxy.got).startswith(f"POST {address}/work-queue/v1/time HTTP/1.1\r\n".encode())
    assert b"authorization: Basic YW5uOnMgY3Ligqx0\r\n" in proxy.got


def test_some_services_need_none(work: WorkQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    address = own_backend_of(work).address
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("all_proxy", "127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "localhost")
    with pytest.raises(DatabaseUnreachableError, match="nothing was done"):
        WorkQueue(str(address))
    for spared in (f"localhost,{address.host}", address.authority, "*"):
        monkeypatch.setenv("no_proxy", spared)
        WorkQueue(str(address)).close()


def test_a_proxy_of_another_kind_is_refused(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", "socks5://ann:secret@127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="proxy") as caught:
        WorkQueue(str(own_backend_of(work).address))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("proxy_encrypts", [False, True])
def test_encrypted_calls_go_through_its_tunnel(
    place: str,
    services: Services,
    database_url: URL,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    proxy_encrypts: bool,
) -> None:
    signed = Certificates(tmp_path)
    certificate, key = signed.of("client")
    scheme, context = "http", None
    if proxy_encrypts:
        scheme, context = "https", ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*signed.of("proxy"))
        monkeypatch.setenv("SSL_CERT_FILE", str(signed.authority))
    own = Tls(ca_file=signed.authority, certificate_file=certificate, key_file=key)
    with WorkQueue(database_url) as served:
        address = services.encrypted(place, served, signed)
        service = address_of(address, token=None, tls=None)
        tunnel = ForwardProxy(service.host, service.port, tunnels=True, tls=context)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.setenv("https_proxy", f"{scheme}://ann:secret@127.0.0.1:{tunnel.port}")
        with WorkQueue(address, tls=own) as work:
            work.insert("a", "value")
        connections = HttpConnections(address_of(address, token=None, tls=own))
        claim = wire.Claim(ClaimRequest("ann", ("none",), 60.0), BOUND_SECONDS, "ticket")
        with ThreadPoolExecutor() as threads:
            asked = threads.submit(
                connections.call, "claim", wire.CLAIM.ask(claim, 1_000), BOUND_SECONDS
            )
            eventually(lambda: waiting(served))
            connections.close()
            with pytest.raises(LostError):
                asked.result(BOUND_SECONDS)
        tunnel.close()
        assert served.queues() == {"a": 1}
    assert bytes(tunnel.got).startswith(f"CONNECT {service.authority} HTTP/1.".encode())
    assert b"Basic YW5uOnNlY3JldA==" in tunnel.got
    assert b"value" not in tunnel.got

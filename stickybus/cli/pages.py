"""The pages that a worker serves: `/metrics` for Prometheus, `/health` for probes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

METRICS, HEALTH = "/metrics", "/health"
_TEXT = ("Content-Type", "text/plain; charset=utf-8")
_JSON = ("Content-Type", "application/json")


@dataclass(frozen=True)
class Health:
    """The health of a process.

    `node` is its name, once it has one; `lease_left_seconds` is 0 when its lease has ended.
    `healthy` and `unhealthy` are those of the bus or service whose beats fail longest.
    """

    node: str | None
    lease_left_seconds: float
    healthy: bool | None = None
    unhealthy: bool = False

    @property
    def holds(self) -> bool:
        """Whether it is a node that may start handlers."""
        return self.lease_left_seconds > 0


def pages(registry: CollectorRegistry, health: Callable[[], Health]) -> WSGIApplication:
    """The WSGI application of both pages: 404 for other paths, 405 but for GET and HEAD."""
    from prometheus_client import make_wsgi_app

    metrics: WSGIApplication = make_wsgi_app(registry)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path, method = environ.get("PATH_INFO", ""), environ["REQUEST_METHOD"]
        if path not in {METRICS, HEALTH}:
            return _answer(
                start_response, "404 Not Found", _TEXT, f"only {METRICS} and {HEALTH} are here\n"
            )
        if method not in {"GET", "HEAD"}:
            return _answer(start_response, "405 Method Not Allowed", ("Allow", "GET, HEAD"), "")
        if path == METRICS:
            return metrics({**environ, "REQUEST_METHOD": "GET"}, start_response)
        found = health()
        status = "200 OK" if found.holds else "503 Service Unavailable"
        body = {"status": "ok" if found.holds else "no lease", **asdict(found)}
        return _answer(start_response, status, _JSON, json.dumps(body) + "\n")

    def without_body(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = answer(environ, start_response)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else body

    return without_body


def _answer(
    start_response: StartResponse, status: str, header: tuple[str, str], body: str
) -> Iterable[bytes]:
    text = body.encode()
    start_response(status, [header, ("Content-Length", str(len(text)))])
    return [text]


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each request: a scrape that waits for the database keeps no probe waiting."""

    daemon_threads = True


class _ServerOfVersion6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    """Logs no requests: there is one every few seconds."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name that the library gave it
        del format, args


@contextmanager
def served(application: WSGIApplication, host: str, port: int) -> Iterator[int]:
    """Serve an application on a port (0: any), which the block gets, until its end.

    Raises OSError.
    """
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    kind = _ServerOfVersion6 if family == socket.AF_INET6 else _Server
    with make_server(str(address[0]), port, application, kind, _Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, name="stickybus-pages", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()

"""A policy agent that answers what it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from tests.contract.service.http.running import Json


class Agent:
    """A policy agent that keeps what it was asked, and answers what it was told."""

    def __init__(self) -> None:
        self.asked = list[Json]()
        self.path = ""
        self.status, self.body = 200, b'{"result": {"allow": true}}'


@contextmanager
def agent_at(agent: Agent) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            agent.path = self.path
            agent.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(agent.status)
            self.send_header("content-length", str(len(agent.body)))
            self.end_headers()
            self.wfile.write(agent.body)

        def log_message(self, *arguments: object) -> None:
            del arguments

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()

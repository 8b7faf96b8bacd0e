"""A web service in its own process, whose requests post in their transactions.

    python -m benchmarks.web_process URL

It writes the port that it serves, and ends with its input. The bus runs in it, as it does in a
service that is one process.
"""

from __future__ import annotations

import socket
import sys
import threading

import uvicorn
from prometheus_client import CollectorRegistry
from sqlalchemy import create_engine, insert
from sqlalchemy.orm import Session
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from benchmarks.outbox import body, notes, orders
from benchmarks.workload import Ticked
from bus.persistent import PersistentBus

CONNECTIONS = 20
"""Of the application: one for each client."""
WAIT_SECONDS = 60.0
"""Of a connection to SQLite, for the writer before."""


def application(url: str) -> tuple[Starlette, PersistentBus]:
    """The service: POST /plain writes two rows, POST /post one, and an event."""
    bus = PersistentBus(url, metrics_registry=CollectorRegistry())
    bus.subscribe(Ticked, _handle, name="benchmark")
    # SQLite's writers take turns, by sleeping: the default of 5 s is too short for 20 of them.
    waits = {"timeout": WAIT_SECONDS} if url.startswith("sqlite") else {}
    engine = create_engine(url, pool_size=CONNECTIONS, connect_args=waits)
    note = {"body": body(engine.dialect.name)}

    # No coroutines: Starlette calls them in threads.
    def plain(_request: Request) -> PlainTextResponse:
        with Session(engine) as session, session.begin():
            session.execute(insert(orders), {"customer": "ann"})
            session.execute(insert(notes), note)
        return PlainTextResponse("done")

    def post(_request: Request) -> PlainTextResponse:
        with Session(engine) as session, session.begin():
            session.execute(insert(orders), {"customer": "ann"})
            bus.post(Ticked(1), connection=session)
        return PlainTextResponse("done")

    def held(_request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(bus._engine.lifecycle.ledger)))

    routes = [
        Route("/plain", plain, methods=["POST"]),
        Route("/post", post, methods=["POST"]),
        Route("/held", held),
    ]
    return Starlette(routes=routes), bus


def _handle(_event: Ticked) -> None:
    """Do nothing."""


def main(url: str) -> None:
    """Serve until the input ends."""
    service, bus = application(url)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(service, log_level="warning", access_log=False))

    def until_input_ends() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=until_input_ends, daemon=True).start()
    bus.start()
    print(listener.getsockname()[1], flush=True)
    server.run(sockets=[listener])
    bus.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

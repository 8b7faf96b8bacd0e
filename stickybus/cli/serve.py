"""`stickybus serve`: the work queue of a database, for other processes and languages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stickybus.cli import logs
from stickybus.cli.option_groups import grouped
from stickybus.cli.output import write_json
from stickybus.cli.target import Json, Url, url_of
from stickybus.cli.usage import UsageError
from work_queue.service.authoriser import Authoriser
from work_queue.service.tls import Tls

if TYPE_CHECKING:
    from work_queue.service.calls import Calls
    from work_queue.service.listener import Listener


@dataclass(frozen=True)
class _Listening:
    """The address on which it listens, and its options."""

    host: str
    http_port: int
    grpc_port: int
    tls: Tls | None
    max_request_bytes: int


def _listening(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    http_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of HTTP (0: any).")
    ] = 9100,
    grpc_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of gRPC (0: any).")
    ] = 37_706,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(help="The service's certificate, with its chain, in PEM.", show_default=False),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="Its private key, in PEM.", show_default=False)
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            help="The signer of callers' certificates. All callers need a certificate then.",
            show_default=False,
        ),
    ] = None,
    max_request_bytes: Annotated[
        int, typer.Option(min=1, help="The longest request.")
    ] = 10_000_000,
) -> _Listening:
    if (tls_certificate is None) != (tls_key is None):
        raise UsageError("--tls-certificate and --tls-key go together")
    if tls_certificate is not None and tls_key is not None:
        tls = Tls(tls_certificate, tls_key, tls_client_ca)
    elif tls_client_ca is not None:
        raise UsageError("--tls-client-ca needs --tls-certificate and --tls-key")
    else:
        tls = None
    return _Listening(host, http_port, grpc_port, tls, max_request_bytes)


def _authoriser(
    *,
    policy: Annotated[
        Path | None,
        typer.Option(
            help="File of callers and their rights, in TOML or JSON; read again when it changes.",
            show_default=False,
        ),
    ] = None,
    opa_url: Annotated[
        str | None,
        typer.Option(
            help="Open Policy Agent that is asked at each call, such as http://localhost:8181.",
            show_default=False,
        ),
    ] = None,
) -> Authoriser | None:
    if policy is not None and opa_url is not None:
        raise UsageError("give either --policy or --opa-url")
    if policy is not None:
        from work_queue.service.authorisers.policy import PolicyFile

        return PolicyFile(policy)
    if opa_url is None:
        return None
    with _extra():
        from work_queue.service.authorisers.opa import OpenPolicyAgent

        return OpenPolicyAgent(opa_url)


@grouped(listening=_listening, authoriser=_authoriser)
def serve(
    *,
    url: Url = None,
    listening: _Listening,
    authoriser: Authoriser | None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    as_json: Json = False,
) -> None:
    """Serve the work queue of a database until SIGTERM or SIGINT.

    Claims that wait then end, calls that run are finished, and it exits with 0. Without --policy
    and --opa-url, any client that reaches its address may do everything. Tokens are sent in clear
    text, unless it has a certificate.

    The HTTP port also has /metrics for Prometheus and /health for probes.

    Examples:
      stickybus serve --url sqlite:///shop.db

      stickybus serve --host :: --policy rights.toml --tls-certificate own.pem --tls-key key.pem
    """
    import asyncio

    from prometheus_client import CollectorRegistry

    from work_queue.service.calls import Calls
    from work_queue.service.service import Service
    from work_queue.work_queue import WorkQueue

    levels = ("debug", "info", "warning", "error")
    if log_level.lower() not in levels:
        raise UsageError(f"--log-level {log_level!r} is none of {', '.join(levels)}")
    logs.configure(log_level)

    def tell(addresses: list[str]) -> None:
        if as_json:
            write_json({"pid": os.getpid(), "addresses": addresses})
            sys.stdout.flush()

    async def run() -> None:
        calls = Calls(work, authoriser, registry)
        try:
            await Service(calls, _listeners(calls, listening)).run(tell)
        finally:
            if authoriser is not None:
                await authoriser.close()

    registry = CollectorRegistry()
    with WorkQueue(url_of(url), metrics_registry=registry) as work:
        asyncio.run(run())


def _listeners(calls: Calls, listening: _Listening) -> list[Listener]:
    with _extra():
        from work_queue.service.http.server import HttpListener
        from work_queue.service.native import grpc as native_grpc
        from work_queue.service.native import http as native_http
        from work_queue.service.native.answers import Answers
        from work_queue.service.rpc.entroq import entroq
        from work_queue.service.rpc.listener import GrpcListener

    answers, cap_bytes = Answers(calls), listening.max_request_bytes
    http = HttpListener(
        calls,
        host=listening.host,
        port=listening.http_port,
        tls=listening.tls,
        max_request_bytes=cap_bytes,
        routes=native_http.routes(answers, max_request_bytes=cap_bytes),
    )
    grpc = GrpcListener(
        {**entroq(calls), **native_grpc.services(answers)},
        host=listening.host,
        port=listening.grpc_port,
        tls=listening.tls,
        max_message_bytes=cap_bytes,
    )
    return [http, grpc]


@contextmanager
def _extra() -> Iterator[None]:
    """Name the extra to install if a module of it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{error.name} is not installed; run: pip install 'stickybus[service]'"
        ) from error

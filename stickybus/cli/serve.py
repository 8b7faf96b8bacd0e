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
from stickybus.cli.work import PrivateKey
from work_queue.service.authoriser import Authoriser
from work_queue.service.tls import Tls

if TYPE_CHECKING:
    from work_queue.service.calls import Calls
    from work_queue.service.listener import Listener

REST_BYTES = 1_000_000
"""Room for all in a request but one longest value."""


@dataclass(frozen=True)
class _Listening:
    """The address on which it listens, and its options."""

    host: str
    http_port: int
    grpc_port: int
    tls: Tls | None


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
    tls_key: PrivateKey = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            help="The signer of callers' certificates. All callers need a certificate then.",
            show_default=False,
        ),
    ] = None,
) -> _Listening:
    if (tls_certificate is None) != (tls_key is None):
        raise UsageError("--tls-certificate and --tls-key go together")
    if tls_certificate is not None and tls_key is not None:
        tls = Tls(tls_certificate, tls_key, tls_client_ca)
    elif tls_client_ca is not None:
        raise UsageError("--tls-client-ca needs --tls-certificate and --tls-key")
    else:
        tls = None
    return _Listening(host, http_port, grpc_port, tls)


@dataclass(frozen=True)
class _Longest:
    """The bytes of the longest value, and of the longest request."""

    value: int
    request: int


def _longest(
    *,
    max_value_bytes: Annotated[
        int,
        typer.Option(
            min=1,
            max=1_000_000_000,
            help="The longest value of a task or content of a doc, as it is stored.",
        ),
    ] = 10_000_000,
    max_request_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2_147_483_647,
            help="The longest request. Default: a third more than a value, as base64 takes, and a "
            "million.",
            show_default=False,
        ),
    ] = None,
) -> _Longest:
    in_base64 = (max_value_bytes + 2) // 3 * 4
    if max_request_bytes is None:
        return _Longest(max_value_bytes, in_base64 + REST_BYTES)
    if max_request_bytes <= in_base64:
        raise UsageError(
            f"--max-request-bytes {max_request_bytes:,} has no room for a value of "
            f"--max-value-bytes {max_value_bytes:,}, which may take {in_base64:,} in base64"
        )
    return _Longest(max_value_bytes, max_request_bytes)


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


@grouped(listening=_listening, longest=_longest, authoriser=_authoriser)
def serve(
    *,
    url: Url = None,
    listening: _Listening,
    longest: _Longest,
    authoriser: Authoriser | None,
    log_level: logs.Level = "info",
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
            await Service(calls, _listeners(calls, listening, longest.request)).run(tell)
        finally:
            if authoriser is not None:
                await authoriser.close()

    registry = CollectorRegistry()
    with WorkQueue(url_of(url), max_value_bytes=longest.value, metrics_registry=registry) as work:
        asyncio.run(run())


def _listeners(calls: Calls, listening: _Listening, cap_bytes: int) -> list[Listener]:
    with _extra():
        from work_queue.service.http.server import HttpListener
        from work_queue.service.native import grpc as native_grpc
        from work_queue.service.native import http as native_http
        from work_queue.service.native.answers import Answers
        from work_queue.service.rpc.entroq import entroq
        from work_queue.service.rpc.listener import GrpcListener

    answers = Answers(calls)
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

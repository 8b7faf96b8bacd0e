"""The work queue that a command is about: of a database, or at a service's address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import typer

from stickybus.cli.moments import parsed_duration
from stickybus.cli.target import connected, url_of
from stickybus.cli.usage import UsageError
from work_queue.document import Doc
from work_queue.finished_task import FinishedTask
from work_queue.remote.address import is_service
from work_queue.remote.tls import Tls
from work_queue.task import Task
from work_queue.values import UNREAD

if TYPE_CHECKING:
    from work_queue.work_queue import WorkQueue

Opening: TypeAlias = "Callable[[], AbstractContextManager[WorkQueue]]"
Queue = Annotated[str, typer.Option("--queue", "-q", help="The queue.", show_default=False)]
OfQueue = Annotated[
    str | None, typer.Option("--queue", "-q", help="Those of this queue.", show_default=False)
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--task", "-t", help="Only this id; may be repeated.", show_default=False),
]
Limit = Annotated[int, typer.Option("--limit", "-n", help="At most this number; 0: all.")]
Lease = Annotated[
    str, typer.Option("--lease", "-d", help="The length of the lease: seconds, or 5m; 0: 45 s.")
]
Force = Annotated[
    bool, typer.Option("--force", "-f", help="Also those that others hold, in their name.")
]
Prefixes = Annotated[
    list[str] | None,
    typer.Option(
        "--prefix",
        "-p",
        help="Those whose name begins with this; may be repeated.",
        show_default=False,
    ),
]
WithoutValues = Annotated[
    bool, typer.Option("--omit-values", "-V", help="Leave values out, and don't read them.")
]
AnyJson = Annotated[
    bool, typer.Option("--json", "-j", help="Write JSON to standard output, for programs.")
]
PrivateKey = Annotated[
    Path | None, typer.Option(help="Its private key, in PEM.", show_default=False)
]


def opening(
    *,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="STICKYBUS_URL",
            help="SQLAlchemy URL of a database; or a service: http://host:9100, https://host, "
            "grpc://host:37706 or grpcs://host:37706, with the token of STICKYBUS_TOKEN.",
            show_default=False,
        ),
    ] = None,
    claimant: Annotated[
        str | None,
        typer.Option(
            envvar="STICKYBUS_CLAIMANT",
            help="Name of the claimant. Default: a random one.",
            show_default=False,
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(help="Certificates that sign the service's, in PEM.", show_default=False),
    ] = None,
    certificate_file: Annotated[
        Path | None, typer.Option(help="The client's own certificate, in PEM.", show_default=False)
    ] = None,
    key_file: PrivateKey = None,
) -> Opening:
    """Open the work queue of these options."""
    files = (ca_file, certificate_file, key_file)
    tls = None
    if any(files):
        tls = Tls(ca_file=ca_file, certificate_file=certificate_file, key_file=key_file)

    @contextmanager
    def opened() -> Iterator[WorkQueue]:
        from work_queue.work_queue import WorkQueue

        if url is not None and is_service(url):
            work = WorkQueue(url, claimant=claimant, tls=tls)
        else:
            with connected(url):  # opening it ourselves would make a missing file of SQLite
                work = WorkQueue(url_of(url), claimant=claimant, tls=tls)
        with work:
            yield work

    return opened


def seconds(text: str) -> float:
    """Seconds, from their number or from a duration such as 5m. Raises a usage error."""
    try:
        return float(text)
    except ValueError:
        return parsed_duration(text).total_seconds()


def value_of(text: str) -> Any:
    """A value from JSON. Raises a usage error."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"the value is no JSON: {error}; quote a text as in '\"text\"'") from error


def facts(found: Task | Doc | FinishedTask) -> dict[str, Any]:
    """A task or a doc for JSON: without unread values, and bytes under a name of their own."""
    held = {one.name: getattr(found, one.name) for one in fields(found)}
    for name in ("value", "content"):
        if isinstance(held.get(name), bytes):
            held[f"{name}_bytes"] = held.pop(name)
    return {name: value for name, value in held.items() if value is not UNREAD}


def row(found: Task | Doc | FinishedTask) -> dict[str, Any]:
    """A task or a doc for a table."""
    held = facts(found)
    texts = [
        *(
            msgspec.json.encode(held[name]).decode()
            for name in ("value", "content")
            if name in held
        ),
        *(f"{len(held[name]):,} bytes" for name in held if name.endswith("_bytes")),
    ]
    return held | {
        "value": next(iter(texts), None),
        "err": held.get("err") or None,
        "claimant": held.get("claimant") or None,
    }

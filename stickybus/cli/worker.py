"""`stickybus worker`: a process that runs the user's handlers until it is told to stop."""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from stickybus.cli import logs
from stickybus.cli.output import write_json
from stickybus.cli.pages import Health, pages, served
from stickybus.cli.target import Json, Url
from stickybus.cli.usage import UsageError

if TYPE_CHECKING:
    from bus.persistent import PersistentBus
    from notifications.service import NotificationService

UNFINISHED = 1

Runnable: TypeAlias = "PersistentBus | NotificationService"


def worker(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:OBJECT",
            help=(
                "A PersistentBus or NotificationService, several in a list, or a function that "
                "returns such."
            ),
            show_default=False,
        ),
    ],
    *,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Serve /metrics for Prometheus and /health for probes on this port (0: any).",
            show_default=False,
        ),
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address to serve both on.")] = "127.0.0.1",
    app_dir: Annotated[Path, typer.Option(help="Folder to import MODULE from.")] = Path(),
    log_level: logs.Level = "info",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Run the handlers of a bus or notification service until SIGTERM or SIGINT.

    It then claims nothing more, lets running handlers finish, gives back entries that have not
    started, and exits with 0 (1 if handlers still ran after shutdown_timeout_seconds). A second
    signal ends it at once; its entries are then run by other nodes. The module finds the URL in the
    environment variable STICKYBUS_URL, also if it was given by --url.

    Examples:
      stickybus worker shop.events:bus

      stickybus worker shop.events:make_all --metrics-port 9000 --log-level warning
    """
    from queue_core.runtime.log import get_logger

    log = get_logger(__name__)
    levels = ("debug", "info", "warning", "error")
    if log_level.lower() not in levels:
        raise UsageError(f"--log-level {log_level!r} is none of {', '.join(levels)}")
    logs.configure(log_level)
    if url:
        os.environ["STICKYBUS_URL"] = url
    runnables = load(target, app_dir)
    with _stop_signals() as stopping, ExitStack() as closing:
        port = (
            _serve_pages(runnables, metrics_host, metrics_port, closing)
            if metrics_port is not None
            else None
        )
        for runnable in runnables:
            closing.callback(runnable.close)
            runnable.start()
        described = [runnable._engine.lifecycle.membership.describe() for runnable in runnables]
        node = runnables[0]._engine.lifecycle.name
        log.info("worker_started", node=node, pid=os.getpid(), target=target, metrics_port=port)
        if as_json:
            write_json(
                {"node": node, "pid": os.getpid(), "serves": described, "metrics_port": port}
            )
            sys.stdout.flush()
        stopping.wait()
        log.info("worker_stopping", node=node)
        # All of them, one after the other: each has its own shutdown time.
        ended = [runnable.stop() for runnable in runnables]
    log.info("worker_stopped", node=node, finished=all(ended))
    if not all(ended):
        raise typer.Exit(UNFINISHED)


def load(target: str, folder: Path) -> list[Runnable]:
    """The buses and services that `MODULE:OBJECT` names. Raises a usage error, one line long."""
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise UsageError(f"{target!r} is not MODULE:OBJECT, such as shop.events:bus")
    sys.path.insert(0, str(folder.resolve()))
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise UsageError(
                f"there is no module {error.name!r} in {folder.resolve()} or on sys.path"
            ) from error
        raise UsageError(f"{module_name} can't be imported: {_told(error)}") from error
    except Exception as error:
        _pass_own(error)
        raise UsageError(f"{module_name} can't be imported: {_told(error)}") from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise UsageError(f"{module_name} has no {path!r}") from error
    return _runnables(found, target)


def _runnables(found: Any, target: str) -> list[Runnable]:
    from bus.persistent import PersistentBus
    from notifications.service import NotificationService

    if callable(found) and not isinstance(found, PersistentBus | NotificationService):
        try:
            found = found()
        except Exception as error:
            _pass_own(error)
            raise UsageError(f"{target}() failed: {_told(error)}") from error
    if inspect.iscoroutine(found):
        found.close()
        raise UsageError(
            f"{target} is a coroutine function: let a plain function (def, not async def) return "
            "the bus or service. Its handlers may be coroutine functions"
        )
    runnables = list(found) if isinstance(found, list | tuple) else [found]
    for runnable in runnables:
        if not isinstance(runnable, PersistentBus | NotificationService):
            raise UsageError(_refusal(target, runnable))
    if not runnables:
        raise UsageError(f"{target} gives an empty list")
    return runnables


def _refusal(target: str, found: object) -> str:
    from work_queue.workers.worker import Worker

    if isinstance(found, Worker):
        return (
            f"{target} gives a Worker of a work queue, which runs by itself: call its method "
            "run() in a script of yours"
        )
    return (
        f"{target} gives an object of type {type(found).__name__}, neither a PersistentBus nor a "
        "NotificationService"
    )


def _pass_own(error: Exception) -> None:
    """Pass on errors that the library raises while the module builds a bus: their exit codes."""
    from queue_core.errors import StickybusError

    if isinstance(error, StickybusError):
        raise error


def _told(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _serve_pages(runnables: list[Runnable], host: str, port: int, closing: ExitStack) -> int:
    from prometheus_client import REGISTRY

    application = pages(REGISTRY, partial(health_of, runnables))
    try:
        return closing.enter_context(served(application, host, port))
    except OSError as error:
        raise UsageError(f"metrics can't be served on {host}:{port}: {error.strerror}") from error


def health_of(runnables: list[Runnable]) -> Health:
    """The health of the process: of the member whose lease has the least left."""
    lifecycles = [runnable._engine.lifecycle for runnable in runnables]
    weakest = min(lifecycles, key=lambda lifecycle: lifecycle.reading().lease_left_seconds)
    left = weakest.reading().lease_left_seconds
    checks = [lifecycle.health.healthy() for lifecycle in lifecycles]
    return Health(
        weakest.name if left else None,
        round(left, 3),
        healthy=False if False in checks else None if None in checks else True,
        unhealthy=any(lifecycle.health.unhealthy() for lifecycle in lifecycles),
    )


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM or SIGINT sets; the second signal has its default effect."""
    stopping = threading.Event()
    before: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {}

    def stop(number: int, _frame: FrameType | None) -> None:
        stopping.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, stop)
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

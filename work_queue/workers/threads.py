"""Calls that get a thread each, so that none waits for another."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

EXITS = SystemExit, KeyboardInterrupt

T = TypeVar("T")


class ExitedError(Exception):
    """A function of the user's has raised SystemExit or KeyboardInterrupt.

    Those would end the event loop at once, and with it all handlers that run.
    """

    def __init__(self, exit_: BaseException) -> None:
        super().__init__(exit_)
        self.exit = exit_


def in_thread(call: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Run it in a thread of this name.

    Nobody has to wait for it, as one that hangs would hold up the rest. The future raises what it
    raises, or ExitedError.
    """
    future = Future[T]()
    future.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result = context.run(call)
        except StopIteration as error:  # futures take none
            stopped = RuntimeError(f"a function in the thread {name} raised StopIteration")
            stopped.__cause__ = error
            future.set_exception(stopped)
        except EXITS as error:
            future.set_exception(ExitedError(error))
        except BaseException as error:  # noqa: BLE001 -- for whoever awaits it
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return asyncio.wrap_future(future)

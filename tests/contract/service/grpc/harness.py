"""A server in a thread of its own, and clients made of what protoc compiles."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import grpc_tools
import pytest
from grpc_tools import protoc

from tests.contract.service.grpc.texts import API, LEGACY, STATUS
from work_queue.service.calls import Calls
from work_queue.service.rpc.entroq import EntroQ
from work_queue.service.rpc.generations import Current, Legacy
from work_queue.service.rpc.server import RpcServer
from work_queue.work_queue import WorkQueue

PATIENCE_SECONDS = 20.0
DETAILS = "grpc-status-details-bin"


@dataclass(frozen=True)
class Stubs:
    """The modules that protoc makes of the texts."""

    api: Any
    api_stub: Callable[[grpc.Channel], Any]
    proto: Any
    proto_stub: Callable[[grpc.Channel], Any]
    status: Any


def compiled(folder: Path) -> Stubs:
    """Compile the texts, and import what comes of it."""
    texts = {"entroq_api": API, "entroq_proto": LEGACY, "rpc_status": STATUS}
    for name, text in texts.items():
        (folder / f"{name}.proto").write_text(text)
    wellknown = Path(grpc_tools.__file__).parent / "_proto"
    arguments = [f"-I{folder}", f"-I{wellknown}", f"--python_out={folder}"]
    failed = protoc.main(
        ["", *arguments, f"--grpc_python_out={folder}", *(f"{name}.proto" for name in texts)]
    )
    assert not failed
    sys.path.insert(0, str(folder))
    try:
        modules = {
            name: importlib.import_module(name)
            for text in texts
            for name in (f"{text}_pb2", f"{text}_pb2_grpc")
        }
    finally:
        sys.path.remove(str(folder))
    return Stubs(
        modules["entroq_api_pb2"],
        _stub(modules["entroq_api_pb2_grpc"]),
        modules["entroq_proto_pb2"],
        _stub(modules["entroq_proto_pb2_grpc"]),
        modules["rpc_status_pb2"].Status,
    )


def _stub(module: ModuleType) -> Callable[[grpc.Channel], Any]:
    made: Callable[[grpc.Channel], Any] = module.EntroQStub
    return made


class Served:
    """A server at work. Its loop runs in a thread, until `stop`."""

    def __init__(self, work: WorkQueue, **options: Any) -> None:
        self._options = {"address": "127.0.0.1:0", "max_message_bytes": 10_000_000, **options}
        self._calls = Calls(work)
        self._listens = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._listens.wait(PATIENCE_SECONDS)
        if self._failed is not None:
            raise self._failed

    async def _run(self) -> None:
        generations = (Current(), Legacy())
        server = RpcServer(
            [EntroQ(self._calls, generation).handler() for generation in generations],
            [generation.package.service for generation in generations],
            **self._options,
        )
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        try:
            self.port = await server.start()
        except BaseException as error:  # noqa: BLE001 -- it is raised in the caller's thread
            self._failed = error
            return
        finally:
            self._listens.set()
        await self._stopped.wait()
        await server.stop(self._grace_seconds)

    def stop(self, grace_seconds: float = 0.0) -> None:
        """End it, and wait until it has ended."""
        if self._thread.is_alive():
            self._grace_seconds = grace_seconds
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    @contextmanager
    def channel(self, **options: Any) -> Iterator[grpc.Channel]:
        """A channel to it."""
        with grpc.insecure_channel(f"127.0.0.1:{self.port}", **options) as channel:
            yield channel


def refused(code: grpc.StatusCode, call: Callable[[], Any]) -> Any:
    """The error of a call that ends with this code."""
    with pytest.raises(grpc.RpcError) as raised:
        call()
    error: Any = raised.value
    assert error.code() is code, error
    return error


def details(error: Any, stubs: Stubs, item: Any) -> Sequence[Any]:
    """The details of an error, of which all are of one kind."""
    [packed] = [value for key, value in error.trailing_metadata() or () if key == DETAILS]
    status = stubs.status.FromString(packed)
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    found = []
    for one in status.details:
        assert one.type_url == f"type.googleapis.com/{item.DESCRIPTOR.full_name}"
        found.append(item.FromString(one.value))
    return found

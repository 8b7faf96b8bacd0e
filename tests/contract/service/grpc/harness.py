"""A server in a thread of its own, and clients made of what protoc compiles."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import grpc_tools
import pytest
from grpc_tools import protoc

from queue_core.errors import ConfigurationError
from tests.contract.service.grpc.texts import API, LEGACY, STATUS
from work_queue.service.authoriser import Authoriser
from work_queue.service.calls import Calls
from work_queue.service.native import grpc as native
from work_queue.service.native.answers import Answers
from work_queue.service.rpc.entroq import entroq
from work_queue.service.rpc.listener import GrpcListener
from work_queue.service.service import Service
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
    """A service at work. Its loop runs in a thread, until `stop`."""

    def __init__(
        self, work: WorkQueue, authoriser: Authoriser | None = None, **options: Any
    ) -> None:
        self._calls = Calls(work, authoriser)
        self._options = {
            "host": "127.0.0.1",
            "port": 0,
            "max_message_bytes": 10_000_000,
            **options,
        }
        self._listens: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self.address = self._listens.result(PATIENCE_SECONDS)
        self.port = int(self.address.rpartition(":")[2])

    async def _run(self) -> None:
        services = {**entroq(self._calls), **native.services(Answers(self._calls))}
        service = Service(self._calls, [GrpcListener(services, **self._options)])
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        try:
            [address] = await service.start()
        except ConfigurationError as error:
            self._listens.set_exception(error)
            return
        self._listens.set_result(address)
        await self._stopped.wait()
        await service.stop()

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    @contextmanager
    def channel(self, **options: Any) -> Iterator[grpc.Channel]:
        """A channel to it."""
        with grpc.insecure_channel(f"127.0.0.1:{self.port}", **options) as channel:
            yield channel


def refused(
    code: grpc.StatusCode, call: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    """The error of a call that ends with this code."""
    with pytest.raises(grpc.RpcError) as raised:
        call(*arguments, **options)
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

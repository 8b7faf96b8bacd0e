"""Work queues at a service's address, behind a proxy that has too much to do."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from queue_core.errors import DatabaseUnreachableError
from tests.contract.harness import BOUND_SECONDS
from work_queue.work_queue import WorkQueue


def test_a_proxy_that_has_too_much_to_do_is_no_refusal_of_a_size() -> None:
    """A worker goes on after it."""
    grpc = importlib.import_module("grpc")

    class Busy(grpc.GenericRpcHandler):  # type: ignore[misc,name-defined]
        def service(self, _call: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                lambda _request, context: context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests"
                )
            )

    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, handlers=[Busy()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            with pytest.raises(DatabaseUnreachableError, match="too many requests"):
                WorkQueue(f"grpc://127.0.0.1:{port}")
        finally:
            server.stop(None).wait(BOUND_SECONDS)

"""`stickybus serve` listens for gRPC beside HTTP."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from typing import Any

import grpc
from sqlalchemy import URL

from tests.contract.service.grpc.harness import PATIENCE_SECONDS, Stubs
from work_queue.work_queue import WorkQueue

MAIN = "from stickybus.cli import main; main()"
PORTS = ["--http-port", "0", "--grpc-port", "0"]


def test_serve_listens_for_grpc_and_ends_its_claims_at_a_stop(
    database_url: URL, stubs: Stubs, work: WorkQueue
) -> None:
    url = database_url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", MAIN, "serve", "--url", url, "--json", *PORTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [*itertools.takewhile(lambda line: line != "}\n", process.stdout), "}"]
            [address] = [
                address
                for address in json.loads("".join(lines))["addresses"]
                if address.startswith("grpc://")
            ]
            with grpc.insecure_channel(address.removeprefix("grpc://")) as channel:
                entroq, api = stubs.api_stub(channel), stubs.api
                work.insert("a", "from here")
                request = api.ClaimRequest(claimant_id="ann", queues=["a"])
                task = entroq.Claim(request, timeout=PATIENCE_SECONDS).task
                assert task.value.string_value == "from here"
                entroq.Modify(
                    api.ModifyRequest(claimant_id="ann", deletes=[{"id": task.id, "version": 1}])
                )
                waiting = entroq.Claim.future(request)
                entroq.Time(api.TimeRequest())
                process.send_signal(signal.SIGTERM)
                error: Any = waiting.exception(PATIENCE_SECONDS)
                assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()
    work.insert("a")
    assert work.claim("a").claims == 1

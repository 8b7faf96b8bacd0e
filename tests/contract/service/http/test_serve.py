"""`stickybus serve`, as it is typed."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import URL

from queue_core.errors import PayloadTooLargeError
from stickybus.cli import main
from tests.contract.harness import BOUND_SECONDS
from tests.contract.service.http.rights import EVERYTHING, bearer, written
from tests.contract.service.http.running import NEW, Running
from work_queue.work_queue import MAX_VALUE_BYTES, WorkQueue

MAIN = "import sys; from stickybus.cli import main; sys.exit(main())"


@contextmanager
def served(url: URL, *options: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A process that serves on free ports, and what it says of itself."""
    command = [sys.executable, "-c", MAIN, "serve", "--json", "--http-port=0", "--grpc-port=0"]
    environment = {**os.environ, "STICKYBUS_URL": url.render_as_string(hide_password=False)}
    with subprocess.Popen(
        [*command, *options], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines = itertools.takewhile(lambda line: line != "}\n", process.stdout)
            yield process, json.loads("".join(lines) + "}")
        finally:
            process.kill()


def test_it_serves_all_wires_until_sigterm(database_url: URL, tmp_path: Path) -> None:
    policy = written(tmp_path / "policy.json", EVERYTHING)
    with served(database_url, f"--policy={policy}") as (process, started):
        assert started["pid"] == process.pid
        [address, other] = started["addresses"]
        assert (address[:5], other[:5]) == ("http:", "grpc:")
        base = f"{address}/api/v0"
        with httpx.Client(timeout=BOUND_SECONDS) as caller:
            assert caller.get(f"{base}/queues", headers=NEW).status_code == 401
            assert caller.get(f"{base}/queues", headers=bearer("ann")).json() == {"queues": []}
            assert caller.post(f"{address}/work-queue/v1/nothing").status_code == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_SECONDS) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tls-key", "key.pem"], "--tls-certificate and --tls-key go together"),
        (["--tls-client-ca", "ca.pem"], "--tls-client-ca needs"),
        (["--tls-certificate", "no.pem", "--tls-key", "no.key"], "can't be read"),
        (["--policy", "no.toml"], "No such file"),
        (["--policy", "no.toml", "--opa-url", "http://localhost"], "either"),
        (["--log-level", "loud"], "--log-level"),
        (
            ["--max-request-bytes", "10000000"],
            "no room for a value",
        ),
        (["--max-value-bytes", "3000", "--max-request-bytes", "4000"], "may take 4,000 in base64"),
        (["--http-port", "70000"], "65535"),
        (["--host", "no.such.host.invalid"], "can't be served"),
    ],
)
def test_what_can_t_work_is_told_in_one_line(
    database_url: URL, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    url = database_url.render_as_string(hide_password=False)
    assert main(["serve", "--url", url, *options]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("stickybus: ") == 1


@pytest.mark.parametrize("options", [[], ["--max-value-bytes=3000"]])
def test_the_longest_value_fits_into_a_request(
    database_url: URL, database_name: str, options: list[str]
) -> None:
    longest = 3000 if options else MAX_VALUE_BYTES
    with served(database_url, *options) as (_process, started):
        for address in started["addresses"]:
            with WorkQueue(address, max_value_bytes=2 * MAX_VALUE_BYTES) as work:
                with pytest.raises(PayloadTooLargeError):
                    work.insert("a", b"\xff" * (longest + 1))
                # MariaDB takes statements of 16 MiB by default, and gets bytes in hex.
                with (
                    pytest.raises(PayloadTooLargeError, match="max_allowed_packet")
                    if database_name == "mariadb" and not options
                    else nullcontext()
                ):
                    assert work.insert("a", b"\xff" * longest).queue == "a"


def test_a_port_that_is_taken_is_told(
    service: Running, database_url: URL, capsys: pytest.CaptureFixture[str]
) -> None:
    url = database_url.render_as_string(hide_password=False)
    port = service.url.rsplit(":", 1)[1]
    assert main(["serve", "--url", url, "--http-port", port]) == 2
    assert f"HTTP can't be served on 127.0.0.1:{port}" in capsys.readouterr().err


def test_tokens_are_no_options() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", MAIN, "serve", "--help"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert "token" not in shown.replace("Tokens are sent in clear text", "")

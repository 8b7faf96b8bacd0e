"""`stickybus worker`: processes that run a user's handlers and stop when they are told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from bus.persistent import PersistentBus
from queue_core.model.states import State
from tests import requirements as needs

SHOP = """
import os, pathlib, time
from stickybus import BusConfig, NotificationService, PersistentBus, Worker, WorkQueue

config = BusConfig(handler_threads=2, max_failure_retries=0, poll_interval_seconds=0.2)
bus = PersistentBus(os.environ["STICKYBUS_URL"], config)

@bus.subscribe("Wait")
def wait(event):
    print("started", flush=True)
    while not pathlib.Path(event["until"]).exists():
        time.sleep(0.01)

@bus.subscribe("Tick")
def tick(event):
    print("tick", flush=True)

def both():
    service = NotificationService(os.environ["STICKYBUS_URL"])
    service.create_queue("clock", "ticks", tick)
    return bus, service

number = 7
nothing = []
def broken():
    raise ValueError("no shop today")

def jobs():
    return Worker(WorkQueue(os.environ["STICKYBUS_URL"]), print, "mail")

async def later():
    return bus
"""


class Worker:
    """A worker process, once it has told that it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self._out = process.stdout
        told = ""
        while not told.endswith("\n}\n"):
            line = self._out.readline()
            assert line, process.communicate()
            told += line
        self.told: dict[str, Any] = json.loads(told)

    def line(self) -> str:
        return self._out.readline().strip()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self) -> tuple[int, str]:
        """Its exit code and log, once it has ended."""
        _, err = self._process.communicate(timeout=60)
        return self._process.returncode, err


StartWorker = Callable[..., Worker]


def command(*arguments: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        "import sys; from stickybus.cli import main; sys.exit(main())",
        "worker",
        *arguments,
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "closed.py").write_text("import nonexistent_dependency\n")
    return tmp_path


@pytest.fixture
def environment(database_url: URL) -> dict[str, str]:
    here = str(Path(__file__).parents[2])
    return os.environ | {
        "STICKYBUS_URL": database_url.render_as_string(hide_password=False),
        "PYTHONPATH": here,
    }


@pytest.fixture
def start_worker(folder: Path, environment: dict[str, str]) -> Iterator[StartWorker]:
    with ExitStack() as started:

        def start(*arguments: str) -> Worker:
            process = subprocess.Popen(
                command(*arguments, "--json"),
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.enter_context(process)
            started.callback(process.kill)
            return Worker(process)

        yield start


@pytest.fixture
def poster(database_url: URL) -> Iterator[PersistentBus]:
    poster = PersistentBus(database_url)
    yield poster
    poster.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_lets_running_handlers_finish_when_it_is_told_to_stop(
    number: signal.Signals, start_worker: StartWorker, poster: PersistentBus, tmp_path: Path
) -> None:
    worker = start_worker("shop:bus")
    until = tmp_path / "until"
    poster.post({"until": str(until)}, event_name="Wait")
    assert worker.line() == "started"
    worker.send(number)
    until.touch()
    code, log = worker.ended()
    assert code == 0
    assert "event=worker_stopped" in log
    (entry,) = poster.history()
    assert (entry.processing_state, entry.processing_owner) == (
        State.PROCESSED,
        worker.told["node"],
    )


def test_a_worker_runs_a_bus_and_a_service_and_serves_metrics(
    start_worker: StartWorker, poster: PersistentBus
) -> None:
    worker = start_worker("shop:both", "--metrics-port", "0")
    assert [served["queues"] for served in worker.told["serves"]] == [["bus"], ["clock:ticks"]]
    poster.post({}, event_name="Tick")
    assert worker.line() == "tick"
    with urllib.request.urlopen(
        f"http://127.0.0.1:{worker.told['metrics_port']}/metrics"
    ) as answer:
        assert b'stickybus_database_up{table="bus_events"} 1.0' in answer.read()
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.told['metrics_port']}/health") as answer:
        assert json.loads(answer.read())["node"] == worker.told["node"]
    worker.send(signal.SIGTERM)
    assert worker.ended()[0] == 0


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("shop", "is not MODULE:OBJECT"),
        ("nowhere:bus", "there is no module 'nowhere'"),
        ("shop:nope", "shop has no 'nope'"),
        ("shop:number", "an object of type int, neither a PersistentBus nor a NotificationService"),
        (
            "shop:jobs",
            "gives a Worker of a work queue, which runs by itself: call its method run()",
        ),
        ("shop:later", "shop:later is a coroutine function: let a plain function"),
        ("shop:nothing", "gives an empty list"),
        ("shop:broken", "ValueError: no shop today"),
        ("closed:bus", "No module named 'nonexistent_dependency'"),
    ],
)
@needs.any_database
def test_a_target_that_cant_be_run_is_told_in_one_line(
    target: str, told: str, folder: Path, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        command(target), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_workers_database_that_isnt_there_is_told_with_its_own_exit_code(folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    arguments = command("shop:bus", "--url", "postgresql://user:swordfish@127.0.0.1:1/name")
    done = subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "can't be reached" in done.stderr
    assert "swordfish" not in done.stderr

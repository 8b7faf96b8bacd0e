"""Processes of the version before beside those of this one, during an upgrade and afterwards.

`version_before.txt` names the commit of the last release, which users have: its code is run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from sqlalchemy import URL

from stickybus import Entry, PersistentBus, State, create_schema
from tests.acceptance.node_process import NodeProcess, bus_on, node_process
from tests.contract.harness import eventually

_HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def version_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the version before."""
    commit = (_HERE / "version_before.txt").read_text("utf-8").strip()
    packed = subprocess.run(
        ["git", "archive", commit], cwd=_HERE.parents[1], check=True, stdout=subprocess.PIPE
    )
    folder = tmp_path_factory.mktemp("version_before")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def old_schema_url(empty_database_url: URL, version_before: Path) -> URL:
    """A database with the schema that the version before makes."""
    url = empty_database_url.render_as_string(hide_password=False)
    program = "import sys; from stickybus import create_schema; create_schema(sys.argv[1])"
    environment = os.environ | {"PYTHONPATH": str(version_before)}
    subprocess.run(
        [sys.executable, "-c", program, url], cwd=version_before, check=True, env=environment
    )
    return empty_database_url


@pytest.fixture
def upgraded_url(old_schema_url: URL) -> URL:
    """The same, upgraded by this version."""
    create_schema(old_schema_url)
    return old_schema_url


@pytest.fixture
def observer(upgraded_url: URL) -> Iterator[PersistentBus]:
    """A bus of this version that is no node."""
    bus = bus_on(upgraded_url, "observer")
    yield bus
    bus.close()


def work(node: NodeProcess, *numbers: int) -> None:
    """Post orders on a node, which runs them."""
    node.tell("post " + " ".join(map(str, numbers)))
    node.wait(*(f"done {number}" for number in numbers))


def ended(observer: PersistentBus) -> list[Entry]:
    """What ended for good."""
    return [entry for entry in observer.history() if entry.processing_state is not State.REAPED]


def assert_each_ended_once(observer: PersistentBus, *numbers: int) -> None:
    eventually(
        lambda: len(ended(observer)) >= len(numbers) and not observer.find(),
        "all orders have ended",
    )
    found = sorted(entry.event_json or "" for entry in ended(observer))
    assert found == sorted(f'{{"number":{number}}}' for number in numbers)
    assert {entry.processing_state for entry in ended(observer)} == {State.PROCESSED}


def test_a_process_of_the_version_before_goes_on_while_the_schema_is_upgraded(
    old_schema_url: URL, version_before: Path
) -> None:
    with node_process(old_schema_url, "old", version_before) as old:
        work(old, 1, 2)
        create_schema(old_schema_url)
        work(old, 3, 4)
        with node_process(old_schema_url, "new") as new:
            work(new, 5, 6)
            work(old, 7, 8)
        observer = bus_on(old_schema_url, "observer")
        assert_each_ended_once(observer, *range(1, 9))
        observer.close()


def test_a_process_of_this_version_takes_over_what_one_of_the_version_before_leaves(
    upgraded_url: URL, version_before: Path, observer: PersistentBus
) -> None:
    with node_process(upgraded_url, "new") as new:
        new.tell("go")
        with node_process(upgraded_url, "old", version_before) as old:
            work(old, 1, 2)
            old.tell("post -3")
            old.wait("run -3")
            old.kill()
        new.wait("done -3")
        with node_process(upgraded_url, "old", version_before) as old:  # restarted under its name
            work(old, 4)
        work(new, 5)
        assert_each_ended_once(observer, 1, 2, -3, 4, 5)


def test_a_process_of_the_version_before_takes_over_what_one_of_this_version_leaves(
    upgraded_url: URL, version_before: Path, observer: PersistentBus
) -> None:
    with node_process(upgraded_url, "old", version_before) as old:
        old.tell("go")
        with node_process(upgraded_url, "new") as new:
            work(new, 1, 2)
            new.tell("post -3")
            new.wait("run -3")
            new.kill()
        old.wait("done -3")
        work(old, 4)
        with node_process(upgraded_url, "new") as new:
            work(new, 5)
        assert_each_ended_once(observer, 1, 2, -3, 4, 5)


def test_what_a_process_of_either_version_leaves_at_its_stop_runs_under_its_name_in_the_other(
    upgraded_url: URL, version_before: Path, observer: PersistentBus
) -> None:
    number = 0
    for root in (version_before, _HERE.parents[1], version_before, _HERE.parents[1]):
        with node_process(upgraded_url, "node", root) as node:
            number += 1
            work(node, number)
            node.tell("stop")
            node.wait("stopped")
    assert_each_ended_once(observer, *range(1, number + 1))

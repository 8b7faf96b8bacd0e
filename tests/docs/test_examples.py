"""What the documents and the examples say can be run, and does what they say."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import URL

from devtools.servers import NO_CERTIFICATES
from stickybus import BusConfig, Entry, PersistentBus, State, WorkQueue
from tests.docs.code_blocks import ROOT, blocks

TUTORIAL = ROOT / "docs" / "tutorial.md"
TUTORIAL_OF_TASKS = ROOT / "docs" / "work-queue-tutorial.md"


_DOCUMENTS = [
    path
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
    if blocks(path, "python")
]


def _trusting() -> dict[str, str]:
    """The environment, but for what keeps tests of database servers from reading certificates."""
    return {key: value for key, value in os.environ.items() if key not in NO_CERTIFICATES}


def _run(*command: str | Path, folder: Path, timeout_seconds: float = 100) -> str:
    """Run a program in `folder`, which must end with exit code 0.

    Returns its standard output.
    """
    # The environment's own programs come first, whether it is active or not.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    # A group of its own: what it starts in the background ends with it, whatever happens.
    started = subprocess.Popen(
        command,
        cwd=folder,
        env={**_trusting(), "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        shown, errors = started.communicate(timeout=timeout_seconds)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    assert started.returncode == 0, f"{shown}\n{errors}"
    return shown


# Some start Spark, which takes a while where the machine is busy.
@pytest.mark.timeout(280)
@pytest.mark.parametrize("document", _DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_code_of_a_document_runs(document: Path, tmp_path: Path) -> None:
    # Documents name their configuration file so.
    (tmp_path / "service.toml").write_text("\n".join(blocks(document, "toml")), encoding="utf-8")
    program = tmp_path / "document.py"
    program.write_text("\n\n".join(blocks(document, "python")), encoding="utf-8")
    _run(sys.executable, program, folder=tmp_path, timeout_seconds=240)


def test_the_readmes_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    readme = ROOT / "README.md"
    (code,), (expected,) = blocks(readme, "python"), blocks(readme, "text")
    (tmp_path / "readme.py").write_text(code, encoding="utf-8")
    assert _run(sys.executable, tmp_path / "readme.py", folder=tmp_path) == expected


def test_an_outbox_delivers_what_committed_only(database_url: URL, tmp_path: Path) -> None:
    assert _example("outbox", database_url, tmp_path) == [
        "the second order was rolled back, and its event with it",
        "order 1 of 42.00 is confirmed",
        "1 event in history, 0 waiting",
    ]


def test_an_exactly_once_handler_that_fails_after_its_write_has_one_effect(
    database_url: URL, tmp_path: Path
) -> None:
    shown = _example("exactly_once", database_url, tmp_path)
    assert shown == ["20 runs, 10 payments, the account holds 10.00"]


def test_a_recurring_notification_fires_once_for_each_due_time(
    database_url: URL, tmp_path: Path
) -> None:
    first, second = _example("recurring", database_url, tmp_path)
    assert first == "pulse fired for 3 due times"
    assert re.fullmatch(r"weekly is due next at Monday 0[78]:00 UTC", second)


@pytest.mark.timeout(330)
def test_the_tutorials_commands_lose_nothing_although_a_worker_is_killed(
    database_url: URL, tmp_path: Path
) -> None:
    url = database_url.render_as_string(hide_password=False)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    # The last command empties the history that is looked at here.
    commands = "".join(blocks(TUTORIAL, "bash")).replace("stickybus history truncate\n", "")
    assert "sqlite:///webhooks.db" in commands
    script = commands.replace("sqlite:///webhooks.db", url)
    shown = _run("bash", "-euo", "pipefail", "-c", script, folder=tmp_path, timeout_seconds=300)
    assert "800 entries posted" in shown

    bus = PersistentBus(database_url, BusConfig())
    history, live = bus.history(), bus.find()
    bus.close()
    chains = defaultdict[int, list[Entry]](list)
    for entry in history:
        chains[entry.origin_id or entry.record_id].append(entry)
    ends = {
        key: [entry for entry in chain if entry.processing_state != State.REAPED]
        for key, chain in chains.items()
    }
    assert live == []
    assert len(ends) == 800
    assert all(len(end) == 1 for end in ends.values())
    last = [end for (end,) in ends.values()]
    assert {
        (entry.processing_state, entry.error_count) for entry in last if entry.class_name == "push"
    } == {(State.PROCESSED, 1)}
    (gollum,) = (entry for entry in last if entry.class_name == "gollum")
    assert (gollum.processing_state, gollum.error_count) == (State.FAILED, 4)
    assert (gollum.last_error or "").startswith("LookupError: there is no wiki here")
    reaped = {
        entry.origin_id or entry.record_id: entry
        for entry in history
        if entry.processing_state == State.REAPED
    }
    assert reaped
    assert {entry.lane for entry in reaped.values()} == {"one"}
    assert {(ends[key][0].processing_state, ends[key][0].lane) for key in reaped} <= {
        (State.PROCESSED, "two"),
        (State.FAILED, "two"),
    }
    assert {entry.lane for entry in last} == {"one", "two"}
    assert None in {entry.search_key1 for entry in last}


@pytest.mark.timeout(330)
def test_the_work_queues_tutorial_sends_each_mail_once_although_a_worker_is_killed(
    database_url: URL, tmp_path: Path
) -> None:
    url = database_url.render_as_string(hide_password=False)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    commands = "".join(blocks(TUTORIAL_OF_TASKS, "bash"))
    assert "sqlite:///mails.db" in commands
    script = commands.replace("sqlite:///mails.db", url)
    shown = _run("bash", "-euo", "pipefail", "-c", script, folder=tmp_path, timeout_seconds=300)
    assert "20 tasks inserted" in shown
    assert "ann.example.com is no address" in shown
    assert "1 of 1 task replayed" in shown

    mails = {*(f"{number}@example.com" for number in range(1, 21)), "ann@example.com"}
    with WorkQueue(database_url) as work:
        assert work.queues() == {"sent": len(mails)}
        assert {task.value["to"] for task in work.tasks("sent")} == mails
        assert {task.value["to"] for task in work.finished_tasks("mail")} == mails
        assert [task.id for task in work.finished_tasks(ids=["mistyped"])] == ["mistyped"]


def _example(name: str, url: URL, folder: Path) -> list[str]:
    program = ROOT / "examples" / f"{name}.py"
    return _run(
        sys.executable, program, url.render_as_string(hide_password=False), folder=folder
    ).splitlines()

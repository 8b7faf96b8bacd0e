"""`stickybus history archive`, `compact`, `verify` and `replay`, as a shell would run them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import read_archive, read_history
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import live_files
from history_pipeline.jobs import archive, compact, expire, replay, report, verify
from stickybus import PersistentBus
from stickybus.cli import main
from tests import requirements as needs
from tests.pipeline.conftest import besides_java
from tests.pipeline.sample import ended, sample_history, write_rows

SAMPLE = len(sample_history())

Run = Callable[..., str]
"""Runs `stickybus history …` on the test's database in this process's session.

It returns standard output.
"""


@pytest.fixture
def run(
    spark: SparkSession,
    history_url: URL,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Run]:
    monkeypatch.setenv("STICKYBUS_URL", history_url.render_as_string(hide_password=False))
    root = logging.getLogger()
    level = root.level

    def run(*arguments: str, expect: int = 0, errors: bool = False) -> str:
        code = main(["history", *arguments])
        out, err = capsys.readouterr()
        assert code == expect, out + err
        assert errors or not err, err
        return err if errors else out

    yield run
    root.setLevel(level)


def test_archive_moves_history_and_says_how_much_and_where(
    run: Run, spark: SparkSession, history_url: URL, target: str
) -> None:
    assert run("archive", "--to", target).startswith(
        "38 rows moved from bus_events_history to 2 files ("
    )
    assert read_history(spark, history_url).count() == 0
    assert read_archive(spark, target).count() == SAMPLE

    told = run("archive", "--to", target)
    assert told.startswith("nothing to archive: no row of bus_events_history ended before 20")
    assert told.endswith(". Rows of the last minute are left for a later run\n")
    assert "minute" not in run("archive", "--to", target, "--before", "1d")
    done: dict[str, Any] = json.loads(run("archive", "--to", target, "--json"))
    assert (done["table"], done["entries"], done["runs"], done["finished"]) == (
        "bus_events",
        0,
        [],
        0,
    )


@needs.any_database
def test_archive_leaves_what_is_younger(
    run: Run, spark: SparkSession, history_url: URL, target: str
) -> None:
    out = run("archive", "--to", target, "--before", "2026-03-02T00:00:00Z", "--json")

    assert json.loads(out)["entries"] == 3
    assert read_history(spark, history_url).count() == SAMPLE - 3


@needs.any_database
def test_compact_and_verify_say_what_they_found(
    run: Run, spark: SparkSession, history_url: URL, target: str
) -> None:
    run("archive", "--to", target)
    assert run("compact", "--in", target).startswith("nothing to do")
    write_rows(history_url, [ended(41)])
    run("archive", "--to", target)

    assert run("compact", "--in", target) == "2 files of 1 day are 1 now, with 36 rows\n"
    assert run("verify", "--in", target).startswith("2 files with 39 rows in ")
    first, *_others = live_files(Archive(spark, target, "bus_events").manifests())
    (Path(target) / "bus_events" / first.path).unlink()
    assert first.path in run("verify", "--in", target, expect=1, errors=True)
    assert json.loads(run("verify", "--in", target, "--json", expect=1))["damaged"] == [first.path]


@needs.any_database
def test_what_spark_can_not_do_is_one_line(
    run: Run, spark: SparkSession, history_url: URL, target: str
) -> None:
    run("archive", "--to", target)
    write_rows(history_url, [ended(41)])
    run("archive", "--to", target)
    *_others, last = live_files(Archive(spark, target, "bus_events").manifests())
    (Path(target) / "bus_events" / last.path).write_bytes(b"no Parquet")

    line = run("compact", "--in", target, expect=1, errors=True)

    assert line.startswith("stickybus: Spark: ")
    assert Path(last.path).name in line
    assert line.count("\n") == 1


@needs.any_database
def test_replay_is_a_dry_run_unless_told_otherwise_and_shows_no_payload(
    run: Run, history_url: URL, target: str
) -> None:
    run("archive", "--to", target)
    failed = ("replay", "--from", target, "--where", "processing_state = 'FAILED'")

    shown = run(*failed)

    assert "Nothing was posted: this was a dry run. To post them, add --yes" in shown
    assert "number" not in shown
    bus = PersistentBus(history_url)
    assert bus.find() == []
    assert "4 entries posted" in run(*failed, "--yes")
    assert [entry.replay_of for entry in bus.find()] == [19, 27, 40]  # of its own queue
    done = json.loads(run(*failed, "--yes", "--json"))
    assert (done["posted"], done["entries"], done["replayed"]) == (0, 0, 5)
    bus.close()
    assert "No archived entry matches." in run("replay", "--from", target, "--where", "false")


def test_an_entry_is_shown_wherever_it_is(
    run: Run, history_url: URL, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bus = PersistentBus(history_url)
    [before] = [entry for entry in bus.history() if entry.record_id == 39]
    bus.close()
    run("archive", "--to", target)

    def show(record_id: int, *options: str) -> tuple[int, str, str]:
        code = main(["entries", "show", str(record_id), "--json", *options])
        return code, *capsys.readouterr()

    assert show(39)[0] == 1
    code, out, _err = show(39, "--archive", target)
    assert code == 0
    assert json.loads(out)["finished_date"] == str(before.finished_date).replace(" ", "T")
    assert json.loads(out)["headers"] == before.captured
    code, _out, err = show(13, "--archive", target)
    assert (code, "there is no entry 13, neither live nor in history, nor in" in err) == (1, True)


@needs.any_database
@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["replay", "--from", "DIR", "--where", "nope = 1"], 1, "`nope` cannot be resolved"),
        (
            ["replay", "--from", "elsewhere", "--where", "true"],
            1,
            "there is no archive of bus_events in",
        ),
        (["archive", "--to", "DIR", "--before", "soon"], 2, "'soon' is no date"),
        (["archive", "--to", "DIR", "--table", "orders"], 3, "lacks the table 'orders'"),
        (["archive", "--to", "s3a://bucket/archive"], 1, "give Spark the connector's jar"),
        (["archive"], 2, "--to"),
        (["replay", "--from", "DIR"], 2, "--where"),
        (["verify", "--in", "elsewhere"], 1, "there is no archive of bus_events in"),
    ],
)
def test_what_can_not_be_done_is_one_line_with_its_exit_code(
    run: Run, target: str, arguments: list[str], code: int, reason: str
) -> None:
    run("archive", "--to", target)

    line = run(*(target if one == "DIR" else one for one in arguments), expect=code, errors=True)

    assert reason in line
    assert line.startswith("stickybus: ")
    assert line.count("\n") == 1


@needs.any_database
def test_the_jobs_for_spark_submit_do_what_the_commands_do(
    spark: SparkSession, history_url: URL, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(history_url)

    def done(job: ModuleType, *arguments: str) -> dict[str, Any]:
        job.main([*arguments, "--url", url])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    midnight = "2026-03-02T00:00:00+00:00"
    assert done(archive, "--to", target, "--before", midnight)["entries"] == 3
    low = ("--from", target, "--where", "record_id < 3")
    assert done(replay, *low, "--since", midnight)["posted"] == 0
    assert done(replay, *low, "--until", midnight)["posted"] == 2
    rest = done(archive, "--to", target, "--run-rows", str(SAMPLE), "--ids-per-partition", "40")
    assert (rest["entries"], len(rest["runs"])) == (SAMPLE - 3, 1)
    write_rows(history_url, [ended(41)])
    assert done(archive, "--to", target)["files"] == 1
    assert done(compact, "--in", target)["files_before"] == 2
    sound = done(verify, "--in", target)
    assert (sound["entries"], sound["damaged"]) == (SAMPLE + 1, [])
    assert done(expire, "--in", target, "--before", midnight)["days"] == 1

    [last] = live_files(Archive(spark, target, "bus_events").manifests())
    (Path(target) / "bus_events" / last.path).unlink()
    with pytest.raises(SystemExit, match="1"):
        verify.main(["--in", target])
    assert json.loads(capsys.readouterr().out)["damaged"] == [last.path]


@pytest.mark.parametrize("job", [archive, compact, expire, replay, report, verify])
def test_a_job_shows_an_example(job: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        job.main(["--help"])
    name = job.__name__.rpartition(".")[2]
    assert (
        '    spark-submit --master spark://head:7077 "$(python -m '
        f'history_pipeline.jobs)/{name}.py" \\\n' in (capsys.readouterr().out)
    )


def test_a_job_wants_dates_with_a_time_zone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        expire.main(["--url", "sqlite://", "--in", "DIR", "--before", "2026-03-02"])
    assert "--before: '2026-03-02' is no date with a time zone, such as" in capsys.readouterr().err


@needs.any_database
def test_without_the_extra_the_commands_say_what_to_install(
    run: Run, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    line = run("archive", "--to", target, expect=1, errors=True)

    assert "pip install 'stickybus[spark]'" in line


@needs.any_database
@pytest.mark.timeout(240)
def test_the_command_runs_by_itself_and_is_quiet(history_url: URL, target: str) -> None:
    """In a process and with a session of its own."""
    command = [
        str(Path(sys.executable).with_name("stickybus")),
        "history",
        "archive",
        "--to",
        target,
        "--json",
    ]
    environment = os.environ | {"STICKYBUS_URL": str(history_url)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=220, check=False
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["entries"] == SAMPLE
    assert besides_java(done.stderr) == []

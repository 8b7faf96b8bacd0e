"""`stickybus tasks`, on each database and at a service's address."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import URL

from stickybus.cli import clearing, main, task_changes
from tests.contract.harness import BOUND_SECONDS
from tests.contract.work_queue.backends import address_of
from tests.contract.work_queue.conftest import MakeWork
from work_queue.face import history
from work_queue.modification import Insert
from work_queue.values import UNREAD
from work_queue.work_queue import LEASE_SECONDS, WorkQueue

Run = Callable[..., Any]


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")


@pytest.fixture
def run(
    work: WorkQueue,
    database_url: URL,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Runs a command; returns its JSON, or its text."""
    monkeypatch.setenv("STICKYBUS_URL", address_of(work, database_url))

    def command(*arguments: str, expect: int = 0) -> Any:
        code = main(["tasks", *arguments])
        out, err = capsys.readouterr()
        assert code == expect, out + err
        if expect:
            return err
        return json.loads(out) if out.startswith(("[", "{")) else out

    return command


def test_values_are_left_out_of_what_is_shown(run: Run, work: WorkQueue) -> None:
    value, hidden = '{"card": "4111"}', ("-V", "--json")
    [task] = run("ins", "-q", "a", "-v", value, *hidden)
    shown = [
        task,
        *run("claim", "-q", "a", "-d", "0.001", "--claimant", "me", *hidden),
        *run("mod", "-t", task["id"], "--force", *hidden),
        *run("tryclaimid", "-t", task["id"], "--claimant", "me", *hidden),
        *run("rm", "-t", task["id"], "--force", *hidden),
    ]
    assert len(shown) == 5
    assert not any("value" in one for one in shown)
    assert "4111" not in run("ins", "-q", "a", "-v", value, "--omit-values")


def test_scenario_91_tasks_are_inserted_and_listed(run: Run, work: WorkQueue) -> None:
    inserted = run("ins", "-q", "a", "-v", '{"n": 1}', "-v", str(2**70), "--json")
    assert [one["value"] for one in inserted] == [{"n": 1}, 2**70]
    assert run("ts", "-q", "a", "--json") == inserted
    assert run("ts", "-t", inserted[1]["id"], "--json") == inserted[1:]
    [first, _] = run("ts", "-q", "a", "-V", "--json")
    assert "value" not in first
    assert inserted[0]["id"] in run("ts", "-q", "a")
    assert len(run("ts", "-q", "a", "-n", "1", "--json")) == 1
    later = run("ins", "-q", "b", "--in", "5m", "--id", "mine", "--json")[0]
    assert (later["id"], later["value"]) == ("mine", None)
    assert work.try_claim("b") is None
    work.insert("bytes", b"\0\xff")
    assert run("ts", "-q", "bytes", "--json")[0]["value_bytes"] == "AP8="
    assert "2 bytes" in run("ts", "-q", "bytes")


def test_scenario_91_docs_are_put_listed_and_removed(run: Run) -> None:
    def put(*arguments: str) -> Any:
        return run("doc-put", "-n", "n", *arguments, "--json")[0]

    docs = [put("-k", key, "-v", f'"{key}"') for key in ("a", "b", "c")]
    second = put("-k", "b", "-K", "2", "-v", "2")
    changed = put("-k", "a", "-v", "null")
    assert (changed["id"], changed["version"], changed["content"]) == (docs[0]["id"], 1, None)
    found = run("docs", "-n", "n", "-k", "b", "-K", "c", "--json")
    assert [(one["key"], one["secondary_key"]) for one in found] == [("b", ""), ("b", "2")]
    [found] = run("docs", "-n", "n", "-i", second["id"], "--json")
    assert found["content"] == 2
    assert "content" not in run("docs", "-n", "n", "--key", "c", "-V", "--json")[0]
    assert run("doc-rm", "-n", "n", "-i", second["id"], "--json") == [found]
    assert "no doc" in run("doc-rm", "-n", "n", "-i", second["id"], expect=1)
    assert len(run("docs", "-n", "n", "-l", "2", "--json")) == 2
    assert run("ns", "-p", "n", "--json") == [{"namespace": "n", "docs": 3, "claimed": 0}]
    assert "c" in run("docs", "-n", "n")
    assert "n" in run("ns")


def test_a_task_is_claimed(run: Run, work: WorkQueue) -> None:
    assert "no task can be claimed in a, b" in run("claim", "-q", "a", "-q", "b", "--try", expect=1)
    assert "no task" in run("claim", "-q", "a", "--timeout", "10ms", expect=1)
    task = work.insert("b")
    [claimed] = run("claim", "-q", "a", "-q", "b", "-d", "1m", "--claimant", "ann", "--json")
    assert (claimed["id"], claimed["claimant"]) == (task.id, "ann")
    [held] = work.tasks("b")
    assert held.lease.total_seconds() == 60
    assert "ann holds it until" in run("tryclaimid", "-t", task.id, expect=1)
    work.modify(held.release(), claimant="ann")
    assert "bob" in run("tryclaimid", "-t", task.id, "--claimant", "bob")
    assert "no task none" in run("tryclaimid", "-t", "none", expect=1)
    work.insert("c")
    for command in (("claim", "-q", "c"), ("tryclaimid", "-t", work.insert("d").id)):
        [claimed] = run(*command, "-d", "0", "--claimant", "ann", "--json")
        [held] = work.tasks(ids=[claimed["id"]])
        assert (held.claimant, held.lease.total_seconds()) == ("ann", LEASE_SECONDS)
    assert "no task" in run("tryclaimid", "-t", task.id, "-q", "a", expect=1)


def test_queues_are_limited(run: Run, work: WorkQueue) -> None:
    tasks = [work.insert("a", number) for number in range(3)]
    assert "No queue is limited" in run("limits")
    told = run(
        "limit", "-q", "a", "--concurrency", "1", "--rate", "9", "--per", "1m", "--by", "ann"
    )
    assert "a is limited to 1 at once, 9 in 60 s" in told
    assert "ann" in run("limits")
    [limit] = run("limits", "--json")
    assert (limit["queue"], limit["concurrency"], limit["burst"]) == ("a", 1, 1)
    held = work.try_claim("a")
    assert held is not None
    assert "no task can be claimed" in run("claim", "-q", "a", "--try", expect=1)
    refused = run("tryclaimid", "-t", tasks[2].id, expect=1)
    assert "a is limited to 1 at once, 9 in 60 s, and 1 are claimed" in refused
    work.modify(held.delete())
    assert tasks[2].id in run("tryclaimid", "-t", tasks[2].id)
    assert "a is limited no more" in run("unlimit", "-q", "a")
    assert run("unlimit", "-q", "a", "--json") == {"unlimited": False}
    assert run("limit", "-q", "a", "--rate", "2", "--json")["rate"] == 2
    assert "2 in 60 s" in run("limit", "-q", "a", "--rate", "2", "--per", "60")
    assert "--concurrency, --rate or both" in run("limit", "-q", "a", expect=2)
    for per in ("1e300", "nan", "soon"):
        assert per in run("limit", "-q", "a", "--rate", "2", "--per", per, expect=2)


def test_tasks_are_inserted_again_and_again(run: Run, work: WorkQueue) -> None:
    assert "No queue has a schedule" in run("recurring")
    night = ["-q", "a", "--name", "night"]
    told = run("recur", *night, "--cron", "0 3 * * *", "--timezone", "Europe/Berlin")
    assert "a gets a task by night, 0 3 * * * (Europe/Berlin), next at 20" in told
    beat = ["-q", "b", "--name", "beat"]
    made = run("recur", *beat, "--every", "10ms", "-v", "[7]", "--missed", "fire_all", "--json")
    assert (made["missed"], made["cron"], made["last_due"]) == ("FIRE_ALL", None, None)
    assert work.claim("b", timeout_seconds=BOUND_SECONDS).value == [7]
    assert "every 0.01 s" in run("recurring")
    assert [one["queue"] for one in run("recurring", "--json")] == ["a", "b"]
    assert "cron" in run("recur", *night, "--cron", "no", expect=2)
    refused = run("recur", *beat, "--every", "5m", "--timezone", "Europe/Berlin", expect=2)
    assert "an interval has none" in refused
    assert "beat of b was stopped" in run("stop-recurring", *beat)
    assert "b has no recurring schedule beat" in run("stop-recurring", *beat, expect=1)
    assert "give either --cron or --every" in run("recur", *beat, expect=2)
    four = run("recur", *beat, "--cron", "0 3 * *", expect=2)
    assert "five fields" in four
    assert "unpack" not in four


def test_a_task_is_changed_at_its_newest_version(run: Run, work: WorkQueue) -> None:
    task = work.modify(Insert(queue="a", value=1, attempt=2, err="failed")).inserted[0]
    [changed] = run("mod", "-t", task.id, "-Q", "b", "--json")
    assert [changed[name] for name in ("queue", "value", "attempt", "err")] == ["b", 1, 2, "failed"]
    work.claim("b")
    assert "CLAIM" in run("mod", "-t", task.id, "-v", "2", expect=1)
    [changed] = run("mod", "-t", task.id, "-v", "2", "-r", "-f", "-i", "1m", "--json")
    assert [changed[name] for name in ("value", "attempt", "err", "claimant")] == [2, 0, "", "me"]


def test_what_is_deleted_is_shown(
    run: Run, work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (work.insert("a", number) for number in (1, 2))
    held = work.insert("b")
    work.claim("b")
    [deleted] = run("rm", "-t", first.id, "--json")
    assert (deleted["id"], deleted["value"]) == (first.id, 1)
    told = run("rm", "-t", second.id, "-t", held.id, "-t", "none", "-r", "0", expect=1)
    assert held.id in told
    assert "none" in told
    assert work.queues() == {"b": 1}
    monkeypatch.setattr(task_changes, "RETRY_SECONDS", 0.01)
    threading.Timer(0.2, lambda: work.modify(work.tasks("b")[0].release())).start()
    assert held.id in run("rm", "-t", held.id, "-r", "1000")
    assert work.queues() == {}


def test_a_queue_is_cleared_without_values(
    run: Run, work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, read = clearing.next_batch, list[Any]()

    def seen(*arguments: Any, **options: Any) -> Any:
        found = batch(*arguments, **options)
        read.extend(task.value for task in found)
        return found

    monkeypatch.setattr(clearing, "BATCH", 3)
    monkeypatch.setattr(clearing, "next_batch", seen)
    work.modify(*(Insert(queue="a", value=number) for number in range(8)))
    work.insert("a", delay=600)
    work.insert("other")
    work.claim("a", claimant="ann")
    work.claim("a", claimant="bob")
    assert "6 tasks would be deleted, 3 would stay" in run("clear", "-q", "a")
    assert run("clear", "-q", "a", "--yes", "--json") == {
        "done": True,
        "matched": 6,
        "deleted": 6,
        "stopped": False,
    }
    assert work.queues() == {"a": 3, "other": 1}
    assert "3 tasks deleted" in run("clear", "-q", "a", "-f", "--yes")
    assert work.queues() == {"other": 1}
    assert "0 tasks would be deleted" in run("clear", "-q", "a")
    assert read == [UNREAD] * 9


def test_what_its_own_claimant_holds_stays_as_the_dry_run_says(run: Run, work: WorkQueue) -> None:
    work.insert("a")
    held = work.claim("a").change(delay=LEASE_SECONDS)
    work.modify(held, Insert(queue="a", delay=600), Insert(queue="a"))
    clear = ("clear", "-q", "a", "--claimant", work.claimant)
    assert "1 task would be deleted, 2 would stay" in run(*clear)
    assert "1 task deleted" in run(*clear, "--yes")
    assert work.queues() == {"a": 2}


def test_what_is_inserted_during_a_clear_stays(
    run: Run, work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, rounds = clearing.next_batch, iter(range(20))

    def inserted_meanwhile(*arguments: Any, **options: Any) -> Any:
        found = batch(*arguments, **options)
        if next(rounds, None) is not None:
            work.insert("a", "new")
        return found

    monkeypatch.setattr(clearing, "BATCH", 1)
    monkeypatch.setattr(history, "CLOCKS_DIFFER", timedelta(hours=-1))
    monkeypatch.setattr(clearing, "next_batch", inserted_meanwhile)
    work.insert("a", "new")
    assert run("clear", "-q", "a", "--yes", "--json")["deleted"] == 0
    assert len(work.tasks("a")) == 21


def test_what_changes_during_a_clear_is_left_to_its_next_batch(
    run: Run, work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.modify(*(Insert(queue="a") for _ in range(4)))
    batch = clearing.next_batch

    def claimed_meanwhile(*arguments: Any, **options: Any) -> Any:
        found = batch(*arguments, **options)
        if len(work.tasks("a")) == 4:
            work.claim("a", claimant="ann")
        return found

    monkeypatch.setattr(clearing, "next_batch", claimed_meanwhile)
    assert run("clear", "-q", "a", "--yes", "--json")["deleted"] == 3
    assert work.tasks("a")[0].claimant == "ann"


def test_queues_are_counted(run: Run, work: WorkQueue) -> None:
    work.modify(Insert(queue="a/1"), Insert(queue="a/2", delay=600), Insert(queue="b"))
    work.claim("b")
    counted = run("qs", "--json")
    assert counted == run("stats", "--json")
    assert [one["queue"] for one in counted] == ["a/1", "a/2", "b"]
    assert counted[2]["claimed"] == counted[2]["max_claims"] == 1
    assert [one["queue"] for one in run("qs", "-p", "a/", "-n", "1", "-j")] == ["a/1"]
    assert [one["queue"] for one in run("stats", "-q", "b", "-j")] == ["b"]
    assert "MAX CLAIMS" in run("stats")


def test_the_time_is_shown(run: Run, work: WorkQueue) -> None:
    before = work.time()
    assert int(run("time", "-m")) >= int(before.timestamp() * 1000)
    assert run("time").endswith("+00:00\n")
    assert run("time", "--local", "--json")["time"][:10]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["ins", "-q", "a", "-v", "text"], "no JSON"),
        (["ins", "-q", "", "-v", "1"], "queue"),
        (["ins", "-q", "a", "--in", "soon"], "no duration"),
        (["ts"], "neither a queue nor ids"),
        (["claim", "-q", "a", "-d", "-1"], "lease_seconds"),
        (["docs", "-n", ""], "namespace"),
    ],
)
def test_what_can_never_be_done_is_a_usage_error(run: Run, arguments: list[str], told: str) -> None:
    assert told in run(*arguments, expect=2)


def test_a_missing_database_is_not_made(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    run("ts", "-q", "a", "--url", f"sqlite:///{tmp_path}/none.db", expect=3)
    assert not (tmp_path / "none.db").exists()
    run("ts", "-q", "a", "--url", "http://127.0.0.1:1", expect=3)
    monkeypatch.delenv("STICKYBUS_URL")
    assert "--url" in run("ts", "-q", "a", expect=2)


def test_finished_tasks_are_kept_listed_and_truncated(run: Run, work: WorkQueue) -> None:
    assert run("keep-history", "-q", "a", "--json") == {"queue": "a", "keeps": True}
    assert [one["queue"] for one in run("histories", "--json")] == ["a"]
    for number in (1, 2):
        work.modify(work.insert("a", number, id=f"{number}").delete())
    ended = run("finished", "-q", "a", "--json")
    assert [(one["id"], one["value"], one["finished_by"]) for one in ended] == [
        ("2", 2, "me"),
        ("1", 1, "me"),
    ]
    assert run("finished", "-t", "1", "--json") == ended[1:]
    assert "value" not in run("finished", "-q", "a", "-V", "-n", "1", "--json")[0]
    assert run("finished", "-q", "a", "--before", "1h", "--json") == []
    assert len(run("finished", "-q", "a", "--since", "1h", "--json")) == 2
    assert "FINISHED" in run("finished", "-q", "a")
    assert "keeps no history" in run("keep-history", "-q", "a", "--off")
    assert run("histories", "--json") == [{"queue": "a", "since": None}]
    assert run("truncate-history", "--before", "1h", "--json") == {"removed": 0}
    assert "2 tasks removed" in run("truncate-history", "-q", "a")
    assert "No task" in run("finished", "-q", "a")
    run("finished", expect=2)


def test_failed_tasks_are_replayed_after_a_preview(run: Run, work: WorkQueue) -> None:
    for err in ("a timeout", "it broke", "a timeout"):
        task = work.insert("a")
        work.modify(task.change(queue="a/err", err=err, attempt=1))
    preview = run("replay", "-q", "a/err", "--error-text", "TIMEOUT")
    assert "2 tasks would be replayed" in preview
    assert "it broke" not in preview
    dry = run("replay", "-q", "a/err", "--json")
    assert (dry["done"], dry["matched"], dry["replayed"], len(dry["first"])) == (False, 3, 0, 3)
    assert work.queues() == {"a/err": 3}
    assert "2 of 2 tasks replayed" in run("replay", "-q", "a/err", "--error-text", "time", "--yes")
    assert run("replay", "-q", "a/err", "--to", "b", "--yes", "--json")["replayed"] == 1
    assert work.queues() == {"a": 2, "b": 1}
    assert "No failed task" in run("replay", "-q", "a/err")


def test_an_insert_shows_what_is_there_and_has_a_priority(run: Run, work: WorkQueue) -> None:
    for value in ("1", "2"):
        [one] = run("ins", "-q", "a", "-v", value, "--id", "x", "--skip-existing", "--json")
        assert one["value"] == 1
    assert "there already" in run("ins", "-q", "a", "--id", "x", "--skip-existing")
    run("ins", "-q", "a", "-v", "3", "--priority", "urgent", "--json")
    assert [task.value for task in work.tasks("a")] == [3, 1]

"""The command line: posts and notifications from lines of JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from bus.persistent import PersistentBus
from queue_core.errors import CommitUnknownError, DatabaseUnreachableError
from queue_core.model.posting import Posting
from queue_core.posting.poster import Poster
from sql import schema
from stickybus.testing import drain
from tests.acceptance.cli.running import Cli, MakeCli, lines

# -- post ----------------------------------------------------------------------------------------


def test_post_maps_fields_to_name_keys_and_payload(cli: Cli, bus: PersistentBus) -> None:
    done = cli(
        *("post", "-", "--event-field", "event", "--key1", "repository_id", "--key2", "sender_id"),
        stdin=lines(
            {"event": "push", "repository_id": 7, "sender_id": 8, "payload": {"size": 1}},
            {"event": "gollum", "repository_id": None, "payload": {}},
            {"event": "fork", "sender_id": -(2**63), "note": "no payload field"},
        ),
    )
    assert "3 entries posted to bus" in done.out
    found = [
        (e.class_name, e.search_key1, e.search_key2, json.loads(e.event_json or ""))
        for e in bus.find()
    ]
    assert found == [
        ("push", 7, 8, {"size": 1}),
        ("gollum", None, None, {}),
        (
            "fork",
            None,
            -(2**63),
            {"event": "fork", "sender_id": -(2**63), "note": "no payload field"},
        ),
    ]


def test_post_reads_a_file_and_skips_its_empty_lines(
    cli: Cli, bus: PersistentBus, tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(
        b'\n{"body": {"n": 1}, "payload": 2}\n   \n' + '{"body": {"n": "ü💡"}}'.encode()
    )
    cli("post", str(path), "--event", "Tick", "--payload-field", "body")
    assert [json.loads(entry.event_json or "") for entry in bus.find()] == [{"n": 1}, {"n": "ü💡"}]


def test_a_posted_file_is_run_by_a_bus(cli: Cli, bus: PersistentBus) -> None:
    seen: list[dict[str, Any]] = []
    bus.subscribe("Tick", seen.append, name="tick")
    cli("post", "-", "--event", "Tick", stdin=lines(*({"n": number} for number in range(1_200))))
    assert len(drain(bus)) == 1_200
    assert sorted(event["n"] for event in seen) == list(range(1_200))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{nope}", "not JSON"),
        (b'{"event": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "an array, not an object"),
        (b"{}", "there is no field 'event'"),
        (b'{"event": 1}', "field 'event', is a number, not a string"),
        (b'{"event": ""}', "1 to 255 characters"),
        (b'{"event": "a\\u0000"}', "no NUL character"),
        (lines({"event": "x" * 256}), "not 256"),
        (b'{"event": "a", "key": ""}', "1 to 255 characters"),
        (
            b'{"event": "a", "key": 7.0}',
            "field 'key', is a number, neither an integer nor a string",
        ),
        (
            b'{"event": "a", "key": true}',
            "field 'key', is a truth value, neither an integer nor a string",
        ),
        (b'{"event": "a", "key": 9223372036854775808}', "64-bit integers"),
        (b'{"event": "a", "payload": "text"}', "field 'payload', is a string, not an object"),
        (b'"4111 1111 1111 1111"', "a string, not an object"),
        (b'{"event": "a", "payload": null}', "field 'payload', is null, not an object"),
        (lines({"event": "a", "payload": {"x": "y" * 1_048_576}}), "the cap is 1,048,576"),
    ],
)
@pytest.mark.sqlite
def test_a_bad_line_is_reported_with_its_number_and_reason(
    line: bytes, reason: str, make_cli: MakeCli, tmp_path: Path
) -> None:
    url = URL.create("sqlite", database=str(tmp_path / "bad.db"))
    schema.create(url)
    cli = make_cli(url)
    good = lines({"event": "good"})
    post = ("post", "-", "--event-field", "event", "--key1", "key")
    done = cli(*post, stdin=good + line.strip() + b"\n" + good, expect=1)
    (reported,) = [told for told in done.err.splitlines() if told.startswith("line ")]
    assert reported.startswith("line 2: ")
    assert reason in reported
    assert cli("entries", "list", "--json").json == []


def test_a_file_with_keys_that_is_posted_twice_gives_each_entry_once(
    cli: Cli, bus: PersistentBus
) -> None:
    events = lines(*({"n": number, "id": f"tick-{number}"} for number in range(3)))
    keyed = ("post", "-", "--event", "Tick", "--key", "id", "--keep", "7d", "--json")
    assert cli(*keyed, stdin=events).json["posted"] == 3
    again = cli(*keyed, stdin=events).json
    assert (again["posted"], again["found"], len(bus.find())) == (0, 3, 3)
    status = bus.key_status("tick-1")
    assert (status.keep, status.keep_seconds) == ("period", 7 * 86_400.0)
    replaced = cli(*keyed, "--on-conflict", "replace", stdin=lines({"n": 7, "id": "tick-1"}))
    assert replaced.json["found"] == 1
    assert '"n":7' in (bus.find(record_ids=[status.record_id or 0])[0].event_json or "")
    done = cli(*keyed, stdin=lines({"n": 4}), expect=1)
    assert [told["reason"] for told in done.json["bad_lines"]] == ["there is no field 'id'"]


def test_options_of_a_key_need_a_field_that_holds_it(cli: Cli, bus: PersistentBus) -> None:
    for option in (("--keep", "forever"), ("--on-conflict", "replace")):
        done = cli("post", "-", "--event", "Tick", *option, stdin=lines({"n": 1}), expect=2)
        assert "need --key" in done.err
    assert bus.find() == []


def test_a_file_is_posted_with_a_priority(cli: Cli, bus: PersistentBus) -> None:
    cli("post", "-", "--event", "Tick", "--priority", "high", stdin=lines({"n": 1}))
    [entry] = bus.find()
    assert entry.effective_date < entry.created_date


def test_a_bad_line_leaves_its_batch_unwritten_and_a_second_run_goes_on_from_there(
    cli: Cli, bus: PersistentBus
) -> None:
    events: list[dict[str, Any]] = [{"n": number, "key": number} for number in range(1_100)]
    bad = [*events]
    bad[700] = {"n": 700, "key": [700]}
    bad[900] = {"n": 900, "key": 2**63}
    done = cli(
        "post", "-", "--event", "Tick", "--key1", "key", "--json", stdin=lines(*bad), expect=1
    )
    assert done.json["posted"] == len(bus.find()) == 500
    assert [told["line"] for told in done.json["bad_lines"]] == [701]
    bad[700] = events[700]
    from_line = str(done.json["continue_from_line"])
    again = ("post", "-", "--event", "Tick", "--key1", "key", "--from-line", from_line)
    assert "line 901: " in cli(*again, stdin=lines(*bad), expect=1).err
    cli(*again, stdin=lines(*events))
    assert sorted(int(entry.search_key1 or 0) for entry in bus.find()) == list(range(1_100))


class _Ended(io.BytesIO):
    """Standard input that is interrupted at its end, as by Ctrl-C."""

    def readline(self, size: int | None = -1, /) -> bytes:
        if line := super().readline(size):
            return line
        raise KeyboardInterrupt

    def __next__(self) -> bytes:
        return self.readline()


def test_ctrl_c_between_two_batches_says_from_which_line_to_go_on(
    cli: Cli, bus: PersistentBus
) -> None:
    events = b"\n\n" + lines(*({"n": number} for number in range(700)))
    done = cli("post", "-", "--event", "Tick", "--json", stdin=_Ended(events), expect=130)
    assert done.err == "stickybus: interrupted\n"
    assert done.json["posted"] == len(bus.find()) == 500
    assert (done.json["continue_from_line"], done.json["unknown_lines"]) == (503, None)
    done = cli("post", "-", "--event", "Tick", stdin=_Ended(events), expect=130)
    assert "Nothing from line 503 on was posted: go on with --from-line 503." in done.err
    again = ("--from-line", "503")
    assert cli("post", "-", "--event", "Tick", *again, "--json", stdin=events).json["posted"] == 200


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (CommitUnknownError("no answer"), 3)]
)
def test_a_batch_whose_commit_gives_no_answer_is_told(
    cli: Cli, bus: PersistentBus, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    post = Poster.post

    def lose_the_answer(poster: Poster, name: str, postings: Sequence[Posting]) -> list[int]:
        ids = post(poster, name, postings)
        if len(postings) < 500:
            raise error
        return ids

    monkeypatch.setattr(Poster, "post", lose_the_answer)
    events = lines(*({"n": number} for number in range(700)))
    done = cli("post", "-", "--event", "Tick", "--json", stdin=events, expect=code)
    assert done.json["posted"] == 500
    assert (done.json["continue_from_line"], done.json["unknown_lines"]) == (501, [501, 700])
    done = cli("post", "-", "--event", "Tick", stdin=events, expect=code)
    assert "500 entries posted" in done.out
    assert "Lines 501 to 700 may be posted, or not" in done.err
    assert len(bus.find()) == 1_400


def test_an_error_after_the_first_batch_says_from_which_line_to_go_on(
    cli: Cli, bus: PersistentBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = Poster.post

    def fail(poster: Poster, name: str, postings: Sequence[Posting]) -> list[int]:
        if len(postings) < 500:
            raise DatabaseUnreachableError("gone")
        return post(poster, name, postings)

    monkeypatch.setattr(Poster, "post", fail)
    events = lines(*({"n": number} for number in range(700)))
    done = cli("post", "-", "--event", "Tick", stdin=events, expect=3)
    assert "Nothing from line 501 on was posted: go on with --from-line 501." in done.err
    assert "stickybus: gone" in done.err
    assert len(bus.find()) == 500


def test_keys_that_are_texts_are_posted_and_found(cli: Cli, bus: PersistentBus) -> None:
    events = [{"key": "ada@example.org"}, {"key": "41"}, {"key": 41}]
    cli("post", "-", "--event", "Tick", "--key2", "key", stdin=lines(*events))

    for given, stored in (("ada@example.org", "ada@example.org"), ('"41"', "41"), ("41", 41)):
        found = cli("entries", "list", "--key2", given, "--json").json
        assert [entry["search_key2"] for entry in found] == [stored]
    cli("history", "forget", "--key2", "ada@example.org", "--yes")
    assert sorted(str(entry.search_key2) for entry in bus.find()) == ["41", "41"]


def test_a_file_that_is_not_there_is_a_usage_error(cli: Cli) -> None:
    assert cli("post", "nowhere.jsonl", "--event", "a", expect=2).err.startswith(
        "stickybus: nowhere.jsonl can't be"
    )


def test_post_wants_either_an_event_name_or_its_field(cli: Cli) -> None:
    for options in ([], ["--event", "a", "--event-field", "b"]):
        assert "either --event-field or --event" in cli("post", "-", *options, expect=2).err


# -- schedule ------------------------------------------------------------------------------------


def test_schedule_takes_each_lines_date(cli: Cli) -> None:
    cli(
        *(
            "schedule",
            "-",
            "--queue",
            "invoices:dunning",
            "--event",
            "Remind",
            "--at-field",
            "due",
            "--key1",
            "id",
        ),
        stdin=lines(
            {"id": 1, "due": "2031-01-31T10:00:00+01:00"},
            {"id": 2, "due": "2031-01-31T10:00:00.5Z"},
        ),
    )
    found = cli(
        "entries", "list", "--table", "notifications", "--queue", "invoices:dunning", "--json"
    ).json
    assert [(entry["search_key1"], entry["effective_date"]) for entry in found] == [
        (1, "2031-01-31T09:00:00+00:00"),
        (2, "2031-01-31T10:00:00.500000+00:00"),
    ]


def test_schedule_delays_all_lines(cli: Cli) -> None:
    before = datetime.now(UTC)
    cli(
        "schedule",
        "-",
        "--queue",
        "a:b",
        "--event",
        "Remind",
        "--delay",
        "30d",
        stdin=lines({}, {}),
    )
    entries = cli("entries", "list", "--table", "notifications", "--json").json
    assert len(entries) == 2
    for entry in entries:
        delay = datetime.fromisoformat(entry["effective_date"]) - before
        assert timedelta(days=30, seconds=-5) < delay < timedelta(days=30, minutes=2)


def test_a_date_without_a_time_zone_is_a_bad_line(cli: Cli) -> None:
    schedule = ("schedule", "-", "--queue", "a:b", "--event", "Remind", "--at-field", "due")
    for due, reason in (
        ("2031-01-31T10:00:00", "no time zone"),
        ("soon", "no date"),
        (7, "no date"),
    ):
        assert reason in cli(*schedule, stdin=lines({"due": due}), expect=1).err
    assert cli("entries", "list", "--table", "notifications", "--json").json == []


@pytest.mark.parametrize(
    "options",
    [
        ["--queue", "a:b"],
        ["--queue", "a:b", "--delay", "5m", "--at-field", "due"],
        ["--queue", "nocolon", "--delay", "5m"],
        ["--queue", "a:b:c", "--delay", "5m"],
        ["--queue", "a:b", "--delay", "5 parsecs"],
        ["--delay", "5m"],
    ],
)
@pytest.mark.sqlite
def test_schedule_refuses_options_that_make_no_sense(
    options: list[str], make_cli: MakeCli, tmp_path: Path
) -> None:
    cli = make_cli(URL.create("sqlite", database=str(tmp_path / "none.db")))
    cli("schedule", "-", "--event", "a", *options, expect=2)
    assert not (tmp_path / "none.db").exists()

"""Archived entries are posted again: those that are asked for, with what they held, each once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL, text

from history_pipeline import archive_history, read_archive, replay_archive
from history_pipeline.archives.archive import Archive
from history_pipeline.errors import (
    ArchiveConflictError,
    ArchiveNotFoundError,
    ReplayConditionError,
    ReplayError,
)
from history_pipeline.upkeep import reposts
from history_pipeline.upkeep.deletion import locked_history
from queue_core.model.entry import Entry
from queue_core.model.posting import Posting
from queue_core.reading.live_entries import Entries
from queue_core.storage.filter import Filter
from sql.database import Database
from sql.statements.archives import Archives
from stickybus import BusConfig, PersistentBus, State
from stickybus.testing import drain
from tests import requirements as needs
from tests.conftest import NewDatabase
from tests.contract.harness import Recorder
from tests.pipeline.sample import ended, sample_history, write_rows

SAMPLE = {row["record_id"]: row for row in sample_history()}
COPIED = (
    *(
        "queue_name",
        "class_name",
        "event_json",
        "event_bytes",
        "codec",
        "user_token",
        "future_user_token",
    ),
    *("search_key1", "search_key2", "created_date", "creating_owner", "headers"),
)
PAST = ("finished_date", "started_date", "last_error")


@pytest.fixture
def target(spark: SparkSession, history_url: URL, tmp_path: Path) -> str:
    """The archive of the whole sample."""
    target = str(tmp_path / "archive")
    archive_history(spark, history_url, target)
    # The sample was written by hand: the next ids are to be others.
    bus = PersistentBus(history_url)
    bus.post_many([Posting(event={}, event_name="Ping")] * 60)
    Entries(bus._engine.store, None).remove(wanted=Filter(class_name="Ping"))
    bus.truncate_history()
    bus.close()
    return target


def live(url: URL) -> list[Entry]:
    """All live entries, of whatever queue."""
    bus = PersistentBus(url)
    found = Entries(bus._engine.store, None).find(Filter())
    bus.close()
    return found


def facts(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in COPIED}


def test_replayed_entries_hold_what_the_archived_ones_held_and_name_them(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    done = replay_archive(
        spark, history_url, target, where="record_id IN (18, 31, 32, 38, 39)", post=True
    )

    assert done.posted == 5
    found = {entry.replay_of: entry for entry in live(history_url)}
    assert found.keys() == {18, 31, 32, 38, 39}
    for parent, entry in found.items():
        assert facts(entry) == {name: SAMPLE[parent or 0][name] for name in COPIED}
        assert (entry.processing_state, entry.lane, entry.processing_owner) == (
            State.AVAILABLE,
            "",
            None,
        )
        assert (entry.error_count, entry.claim_count, entry.crash_count, entry.origin_id) == (
            0,
            0,
            0,
            None,
        )


def test_a_replayed_entry_is_delivered(spark: SparkSession, history_url: URL, target: str) -> None:
    replay_archive(spark, history_url, target, where="record_id = 14", post=True)
    recorder = Recorder()
    bus = PersistentBus(history_url, BusConfig())
    bus.subscribe("Order", recorder)

    drain(bus)

    assert recorder.events == [{"number": 14}]
    [past] = bus.history()
    assert (past.replay_of, past.processing_state) == (14, State.PROCESSED)
    bus.close()


def test_of_what_was_not_processed_only_the_subscribers_run_again_that_had_not_succeeded(
    spark: SparkSession, database_url: URL, tmp_path: Path
) -> None:
    """Of the rest all run: who replays what was PROCESSED wants it once more."""
    done = '{"book":true,"mail":false}'
    write_rows(
        database_url,
        [
            ended(1, "FAILED", subscribers_done=done),
            ended(2, "PROCESSED", subscribers_done=done),
            ended(3, "REMOVED", subscribers_done=done),
        ],
    )
    target = str(tmp_path / "archive")
    archive_history(spark, database_url, target)
    bus = PersistentBus(database_url)
    book, mail = Recorder(), Recorder()
    bus.subscribe("Order", book, name="book")
    bus.subscribe("Order", mail, name="mail")

    replay_archive(spark, database_url, target, where="true", post=True)
    drain(bus)

    assert [event["number"] for event in mail.events] == [1, 2, 3]
    assert [event["number"] for event in book.events] == [2]
    assert [(entry.replay_of, entry.processing_state) for entry in bus.history()] == [
        (1, State.PROCESSED),
        (2, State.PROCESSED),
        (3, State.PROCESSED),
    ]
    bus.close()


def test_a_dry_run_shows_what_would_be_posted_and_posts_nothing(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    done = replay_archive(spark, history_url, target, where="processing_state = 'FAILED'")

    assert [
        (group.queue_name, group.class_name, group.entries, group.replayed) for group in done.groups
    ] == [
        ("billing:réminders", "Ümlaut", 1, 0),
        ("bus", "Order", 3, 1),  # 17 was tried again by hand
    ]
    assert [row["record_id"] for row in done.first] == [18, 19, 27, 40]
    assert done.first[0]["finished_date"] == SAMPLE[18]["finished_date"]
    assert not {"event_json", "event_bytes", "headers", "last_error"} & done.first[0].keys()
    assert (done.posted, live(history_url)) == (0, [])


def test_nothing_is_posted_twice_not_even_when_the_replayed_entry_was_archived_or_deleted(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    def again(where: str = "record_id IN (1, 2, 3)") -> tuple[int, int, int]:
        done = replay_archive(spark, history_url, target, where=where, post=True)
        return done.posted, done.entries, done.replayed

    bus = PersistentBus(history_url)
    bus.subscribe("Order", Recorder())
    assert again("record_id IN (1, 2)") == (2, 2, 0)
    assert again("record_id IN (1, 2)") == (0, 0, 2)
    drain(bus)
    archive_history(spark, history_url, target, before=bus._engine.store.clock.now())
    assert again() == (1, 1, 2)
    drain(bus)
    assert bus.truncate_history() == 1
    bus.close()
    # Nothing is left of the last one but the ledger.
    assert again() == (0, 0, 3)


def test_an_entry_that_was_tried_again_by_hand_is_not_posted_once_more(
    spark: SparkSession, database_url: URL, tmp_path: Path
) -> None:
    """Wherever the new entry is by now: live, in history, or in the archive."""
    target = str(tmp_path / "archive")
    write_rows(database_url, [ended(number, "FAILED") for number in (1, 2, 3, 4)])
    archive_history(spark, database_url, target)
    write_rows(database_url, [ended(5, replay_of=1)])
    archive_history(spark, database_url, target)
    write_rows(database_url, [ended(6, replay_of=2)])
    write_rows(
        database_url,
        [
            {
                name: value
                for name, value in ended(7, "AVAILABLE", replay_of=3).items()
                if name not in PAST
            }
        ],
        "bus_events",
    )

    done = replay_archive(
        spark, database_url, target, where="processing_state = 'FAILED'", post=True
    )

    assert (done.posted, done.replayed) == (1, 3)
    assert {entry.replay_of for entry in live(database_url)} == {3, 4}


@needs.any_database
def test_what_went_on_elsewhere_is_left_out(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    done = replay_archive(
        spark, history_url, target, where="record_id BETWEEN 23 AND 29", post=True
    )

    assert [entry.replay_of for entry in live(history_url)] == [24, 27, 29]
    assert done.entries == 3


@needs.any_database
def test_entries_go_out_in_batches_by_ascending_id(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reposts, "BATCH_ROWS", 4)
    told = list[tuple[str, int, int]]()

    replay_archive(
        spark,
        history_url,
        target,
        where="record_id < 12",
        post=True,
        progress=lambda *step: told.append(step),
    )

    assert told == [("posted", 4, 11), ("posted", 8, 11), ("posted", 11, 11)]
    assert [entry.replay_of for entry in live(history_url)] == list(range(1, 12))


@needs.any_database
def test_an_archive_is_replayed_into_another_database_once_as_well(
    spark: SparkSession, history_url: URL, target: str, new_database: NewDatabase
) -> None:
    other = new_database("other")
    # There, it is an id of something else.
    write_rows(other, [ended(100, replay_of=16)])

    for posted in (1, 0):
        assert (
            replay_archive(spark, other, target, where="record_id = 16", post=True).posted == posted
        )

    assert [entry.replay_of for entry in live(other)] == [16]
    assert live(history_url) == []


@needs.any_database
def test_a_replayed_entry_has_its_own_marks_and_no_links(
    spark: SparkSession, database_url: URL, tmp_path: Path
) -> None:
    own = {
        "trace": "7",
        "!context": '{"user":"ada"}',
        "!max_run_seconds": "5.0",
        "!limit_key": "tenant",
        "!search_key1": "ada",
    }
    links = {"!group": "1", "!order": "k", "!order_failure": "skip", "!key": "k", "!awaited": ""}
    given = [own | links | {"!probe": ""}, links, None]
    headers = [None if one is None else json.dumps(one) for one in given]
    write_rows(
        database_url, [ended(number, headers=text) for number, text in enumerate(headers, start=1)]
    )
    archive_history(spark, database_url, str(tmp_path / "archive"))

    replay_archive(spark, database_url, str(tmp_path / "archive"), where="true", post=True)

    found = {entry.replay_of: entry.headers for entry in live(database_url)}
    assert json.loads(found[1] or "") == own
    assert (found[2], found[3]) == (None, None)


@needs.any_database
@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("nope = 1", "`nope` cannot be resolved"),
        ("record_id >", "Syntax error"),
        ("record_id = 1; DROP TABLE x", "Syntax error"),
        ("queue_name", "not a boolean"),
        ("count(*) > 1", "invalid expressions"),
        ("rand() < 0.5", "differently each time"),
        ("reflect('java.lang.System', 'exit', 1) IS NULL", "differently each time"),
    ],
)
def test_a_condition_that_can_not_work_is_one_clear_line(
    spark: SparkSession, history_url: URL, target: str, where: str, reason: str
) -> None:
    with pytest.raises(ReplayConditionError) as caught:
        replay_archive(spark, history_url, target, where=where, post=True)

    message = str(caught.value)
    assert reason in message
    assert message.endswith(
        "Nothing was posted." if "each time" not in message else "by their columns."
    )
    assert "\n" not in message
    assert live(history_url) == []


@needs.any_database
def test_an_error_of_a_condition_quotes_no_payload(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    for where in ("cast(event_json AS int) = 1", "raise_error(event_json) IS NULL"):
        with pytest.raises(ReplayConditionError, match=r"of some entry: [A-Z_]+\.") as caught:
            replay_archive(spark, history_url, target, where=where)

        assert "number" not in str(caught.value)


@needs.any_database
def test_one_replay_at_a_time(spark: SparkSession, history_url: URL, target: str) -> None:
    database = Database(history_url)
    with (
        locked_history(database, "bus_events"),
        pytest.raises(ArchiveConflictError, match="under way"),
    ):
        replay_archive(spark, history_url, target, where="true", post=True)
    database.close()


def test_an_entry_that_the_database_refuses_stops_the_replay_with_its_batch(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reposts, "BATCH_ROWS", 4)
    database = Database(history_url)
    # As when another session has posted it between our look and our entry.
    archive = Archive(spark, target, "bus_events").manifests()[0].archive
    monkeypatch.setattr(Archives, "replayed", lambda *_arguments: set())
    database.write(
        lambda connection: connection.execute(
            text("INSERT INTO queue_replays VALUES (:archive, 6, 1, '2026-01-01 00:00:00.000000')"),
            {"archive": archive},
        )
    )
    database.close()

    with pytest.raises(
        ReplayError, match=r"an entry of 5 to 8 .*nothing was posted; 4 entries before it"
    ) as caught:
        replay_archive(spark, history_url, target, where="record_id < 12", post=True)

    assert caught.value.posted == 4
    assert [entry.replay_of for entry in live(history_url)] == [1, 2, 3, 4]


@needs.any_database
def test_an_empty_archive_replays_nothing_and_a_missing_one_is_an_error(
    spark: SparkSession, database_url: URL, tmp_path: Path
) -> None:
    target = str(tmp_path / "archive")
    with pytest.raises(ArchiveNotFoundError):
        replay_archive(spark, database_url, target, where="true")
    archive_history(spark, database_url, target)

    done = replay_archive(spark, database_url, target, where="true", post=True)

    assert (done.groups, done.posted) == ([], 0)
    assert read_archive(spark, target).count() == 0

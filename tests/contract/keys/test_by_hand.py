"""Keys by hand: where they stand, their release, and the retry of an entry that had one."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Engine

from queue_core.model.keyed import Keep, OnConflict
from stickybus import (
    DuplicateKeyError,
    EntryContext,
    Inspector,
    InvalidPostError,
    KeyState,
    KeyStatus,
    ScheduledRetries,
    State,
)
from stickybus.cli import main
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeService
from tests.contract.harness import Order, Recorder
from tests.contract.waits.looks import ran


def state(peer: Peer, key: str = "a") -> KeyState:
    return peer.bus.key_status(key).state


def test_a_key_that_nobody_has_is_unknown(poster: Peer) -> None:
    unknown = KeyStatus(table="bus_events", queue_name="bus", key="a", state=KeyState.UNKNOWN)
    assert poster.bus.key_status("a") == unknown


def test_a_key_tells_where_its_entry_stands(poster: Peer, cluster: Cluster) -> None:
    node, seen = cluster.join("node"), list[KeyState]()

    class Looking(Recorder):
        def __call__(self, event: Order, context: EntryContext) -> None:
            seen.append(state(poster))
            if event.number == 1:
                poster.bus.post(Order(2), key="a", on_conflict="requeue")
                seen.append(state(poster))

    node.handler = Looking()
    poster.bus.post(Order(1), key="a", keep=timedelta(hours=1))
    assert state(poster) is KeyState.QUEUED
    node.run()
    assert seen == [KeyState.LOCKED, KeyState.LOCKED_WITH_REQUEUE, KeyState.LOCKED]
    status = poster.bus.key_status("a")
    assert (status.state, status.ended_state) == (KeyState.DONE, State.PROCESSED)
    assert (status.keep, status.keep_seconds) == ("period", 3_600.0)
    assert status.ended_date == cluster.clock.now()
    assert status.kept_until == cluster.clock.now() + timedelta(hours=1)
    cluster.live(3_660, node, step=10)
    assert state(poster) is KeyState.UNKNOWN


def test_a_key_whose_entry_waits_for_a_retry_is_in_back_off(poster: Peer, cluster: Cluster) -> None:
    node = cluster.join("node", retry=ScheduledRetries((60,)))
    node.handler = Recorder(failures=1)
    poster.bus.post(Order(1), key="a")
    node.run()
    assert state(poster) is KeyState.IN_BACK_OFF
    assert poster.bus.post(Order(2), key="a").answer == "in_back_off"


def test_a_released_key_is_free(poster: Peer, cluster: Cluster) -> None:
    poster.bus.post(Order(1), key="a")
    assert poster.bus.release_key("a")
    assert not poster.bus.release_key("a")
    assert poster.bus.post(Order(2), key="a").created
    node = cluster.join("node")
    node.run()
    assert ran(node) == [1, 2]
    assert state(poster) is KeyState.UNKNOWN


def test_what_was_to_follow_runs_also_if_the_key_is_released(
    poster: Peer, cluster: Cluster
) -> None:
    node = cluster.join("node")
    poster.bus.post(Order(1), key="a")
    node.claim()
    poster.bus.post(Order(2), key="a", on_conflict="requeue")
    assert poster.bus.release_key("a")
    assert state(poster) is KeyState.UNKNOWN
    assert poster.bus.post(Order(3), key="a").created
    node.run()
    assert sorted(ran(node)) == [1, 2, 3]
    assert state(poster) is KeyState.UNKNOWN


def test_a_release_and_a_look_are_part_of_the_callers_transaction(
    poster: Peer, engine: Engine
) -> None:
    with engine.connect() as connection:
        poster.bus.post(Order(1), key="a", connection=connection)
        assert poster.bus.key_status("a", connection=connection).state is KeyState.QUEUED
        assert poster.bus.release_key("a", connection=connection)
        connection.rollback()
    assert state(poster) is KeyState.UNKNOWN


@pytest.mark.parametrize("key", ["", 7, "a" * 256])
def test_what_is_no_key_is_refused(poster: Peer, key: Any) -> None:
    with pytest.raises(InvalidPostError, match="key"):
        poster.bus.key_status(key)
    with pytest.raises(InvalidPostError, match="key"):
        poster.bus.release_key(key)


def failed(poster: Peer, cluster: Cluster, **options: Any) -> tuple[Peer, int]:
    """A node, and an entry with a key that has ended FAILED there."""
    node = cluster.join("node")
    node.handler = Recorder(failures=4)
    record_id = poster.bus.post(Order(1), key="a", **options)
    node.run()
    return node, record_id


@pytest.mark.parametrize("keep", ["living", "forever", timedelta(hours=1)])
def test_a_retry_has_the_key_again(poster: Peer, cluster: Cluster, keep: Any) -> None:
    node, record_id = failed(poster, cluster, keep=keep)
    again = poster.bus.retry(record_id)
    assert poster.bus.post(Order(2), key="a") == again
    assert poster.bus.key_status("a").state is KeyState.QUEUED
    node.run()
    assert state(poster) is (KeyState.UNKNOWN if keep == "living" else KeyState.DONE)


def test_a_retry_does_not_take_anothers_key(poster: Peer, cluster: Cluster, engine: Engine) -> None:
    node, record_id = failed(poster, cluster)
    other = poster.bus.post(Order(2), key="a")
    for call in (poster.bus.retry, poster.bus.retry_and_wait):
        with pytest.raises(DuplicateKeyError, match=f"entry {record_id} had the key 'a'") as caught:
            call(record_id)
        assert caught.value.record_id == other
        assert "DuplicateKeyError:" in (call.__doc__ or "")
    with engine.connect() as connection:
        with pytest.raises(DuplicateKeyError):
            poster.bus.retry(record_id, connection=connection)
        connection.commit()
    assert [entry.record_id for entry in poster.bus.find()] == [other]
    assert poster.bus.retry(record_id, force=True)
    assert poster.bus.key_status("a").record_id == other
    node.run()
    assert state(poster) is KeyState.UNKNOWN


def test_keys_are_listed_page_by_page(
    poster: Peer, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_core.reading.keys.PAGE", 2)
    for number in range(5):
        poster.bus.post(Order(number), key=f"k{number}")
    assert [one.key for one in inspector.keys(table=None)] == [f"k{number}" for number in range(5)]
    assert [one.key for one in inspector.keys(queue_name="bus", limit=3)] == ["k0", "k1", "k2"]
    assert inspector.keys(queue_name="other") == []
    assert inspector.key_status("bus", "k3").state is KeyState.QUEUED
    assert inspector.key_status("bus", "k9").state is KeyState.UNKNOWN


def test_the_command_line_shows_a_key_of_any_table(
    make_service: MakeService, database_url: URL, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ["--url", database_url.render_as_string(hide_password=False)]
    queue = make_service().create_queue("shop", "mails", Recorder(), event_types=[Order])
    record_id = queue.schedule(Order(1), delay=60, key="a")
    for table in ([], ["--table", "notifications"]):
        assert main(["keys", "show", "a", "--queue", "shop:mails", "--json", *table, *url]) == 0
        [shown] = json.loads(capsys.readouterr().out)
        assert (shown["table"], shown["record_id"]) == ("notifications", record_id)
    assert main(["keys", "show", "a", "--table", "bus_events", *url]) == 1
    assert main(["keys", "show", "a", "--table", "nowhere", *url]) != 0


def test_the_command_line_lists_shows_and_releases(
    poster: Peer, database_url: URL, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ["--url", database_url.render_as_string(hide_password=False)]
    record_id = poster.bus.post(Order(1), key="a")
    assert main(["keys", "list", "--json", *url]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert (listed["key"], listed["record_id"], listed["state"]) == ("a", record_id, "queued")
    assert main(["keys", "show", "a", "--json", *url]) == 0
    assert json.loads(capsys.readouterr().out) == [listed]
    assert main(["keys", "list", *url]) == 0
    assert "queued" in capsys.readouterr().out
    assert main(["keys", "release", "a", *url]) == 0
    assert main(["keys", "release", "a", *url]) == 1
    assert "stickybus: no entry has the key a of bus" in capsys.readouterr().err
    assert main(["keys", "show", "a", *url]) == 1
    assert capsys.readouterr().err == "stickybus: no entry has the key a of bus\n"
    assert main(["keys", "show", "a", "--json", *url]) == 1
    assert json.loads(capsys.readouterr().out)[0]["state"] == "unknown"
    poster.bus.post(Order(2), key="b")
    for code, released in ((0, True), (1, False)):
        assert main(["keys", "release", "b", "--json", *url]) == code
        assert json.loads(capsys.readouterr().out) == {"released": released}


@pytest.mark.parametrize("keep", ["waiting", "living", "forever", timedelta(hours=1)])
@pytest.mark.parametrize("on_conflict", ["return", "replace"])
def test_an_entry_that_was_removed_keeps_its_key_as_long_as_before_when_it_is_retried(
    poster: Peer, keep: Keep, on_conflict: OnConflict
) -> None:
    record_id = int(poster.bus.post(Order(1), key="a", keep=keep))
    poster.bus.post(Order(2), key="a", on_conflict=on_conflict)
    before = poster.bus.key_status("a")
    poster.bus.clear()
    assert state(poster) is KeyState.UNKNOWN
    again = poster.bus.retry(record_id)
    after = poster.bus.key_status("a")
    assert (after.record_id, after.keep, after.keep_seconds) == (
        again,
        before.keep,
        before.keep_seconds,
    )


@pytest.mark.parametrize("keep", ["living", timedelta(hours=1)])
def test_what_follows_an_entry_has_its_keep_also_when_it_is_retried(
    poster: Peer, cluster: Cluster, keep: Keep
) -> None:
    node = cluster.join("node")

    class Posting(Recorder):
        def __call__(self, event: Order, context: EntryContext) -> None:
            poster.bus.post(Order(2), key="a", keep="forever", on_conflict="requeue", delay=60)

    node.handler = Posting()
    poster.bus.post(Order(1), key="a", keep=keep)
    node.run()
    before = poster.bus.key_status("a")
    assert before.state is KeyState.QUEUED
    assert before.record_id is not None
    poster.bus.clear()
    poster.bus.retry(before.record_id)
    after = poster.bus.key_status("a")
    assert (after.keep, after.keep_seconds) == (before.keep, before.keep_seconds)

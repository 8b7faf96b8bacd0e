"""Logs at INFO and above show neither passwords nor payloads, whatever fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import URL, Engine, text
from sqlalchemy.exc import DBAPIError

from queue_core.errors import DatabaseUnreachableError
from queue_core.model.posting import Posting
from queue_core.model.states import State
from queue_core.running.subscriber import EntryContext
from sql.database import Database
from stickybus import StickybusError
from tests import requirements as needs
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import eventually

SECRET = "s3cret-payload-7f1c"


class Told(logging.Handler):
    """All that is logged at INFO and above, as a file has it, with tracebacks and facts."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record) + repr(record.__dict__.get("facts")))

    def events(self) -> set[str]:
        """The first words of the messages."""
        return {line.split()[1] for line in self.lines}


@pytest.fixture
def told() -> Iterator[Told]:
    told, root = Told(), logging.getLogger()
    level = root.level
    root.addHandler(told)
    root.setLevel(logging.INFO)
    yield told
    root.setLevel(level)
    root.removeHandler(told)


def refuse_history(engine: Engine, name: str, *, refuse: bool) -> None:
    """Let every outcome fail, or no longer: the history table has another name meanwhile."""
    old, new = (
        ("bus_events_history", "elsewhere") if refuse else ("elsewhere", "bus_events_history")
    )
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))


def test_a_busy_run_with_failures_of_all_kinds_logs_no_payload_and_no_password(
    make_bus: MakeBus, engine: Engine, database_url: URL, database_name: str, told: Told
) -> None:
    bus = make_bus(
        lease_seconds=1.0,
        reap_period_seconds=0.05,
        poll_interval_seconds=0.05,
        max_failure_retries=1,
        retry=None,
        max_execution_seconds=0.01,
    )
    runs = list[int]()

    def handle(event: dict[str, Any], _context: EntryContext) -> None:
        runs.append(int(event["number"]))
        if event["number"] % 3 == 0:
            raise RuntimeError("the handler fails")

    bus.subscribe("Secret", handle, name="secrets")
    bus.start()
    for number in range(12):
        bus.post({"number": number, "note": SECRET}, event_name="Secret")
    bus.post_many(
        [
            Posting(event={"number": number, "note": SECRET}, event_name="Secret")
            for number in range(13, 40)
        ]
    )
    bus.post({"note": SECRET}, event_name="NobodyKnows")
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO bus_events (class_name, event_json) VALUES ('Secret', :payload)"),
            {"payload": '{"note": "' + SECRET},
        )
    refuse_history(engine, database_name, refuse=True)
    try:
        bus.post({"number": 99, "note": SECRET}, event_name="Secret")
        eventually(lambda: "loop_failed" in told.events(), "an outcome can't be written")
    finally:
        refuse_history(engine, database_name, refuse=False)
    eventually(
        lambda: not bus.find(states=[State.AVAILABLE, State.IN_PROCESSING]) or _parked(bus),
        "all has ended",
    )

    assert {"loop_failed", "entry_failed"} <= told.events()
    everything = "\n".join(told.lines)
    assert SECRET not in everything
    assert database_url.password is None or database_url.password not in everything


def _parked(bus: Any) -> bool:
    return all(entry.class_name == "NobodyKnows" for entry in bus.find())


@needs.server
def test_a_row_that_the_database_refuses_is_not_quoted(
    make_bus: MakeBus, engine: Engine, told: Told
) -> None:
    """PostgreSQL's own words for it hold the whole row."""
    bus = make_bus(poll_interval_seconds=0.05)
    bus.subscribe("Secret", lambda _event, _context: None, name="secrets")
    with engine.begin() as connection:
        connection.execute(
            text("ALTER TABLE bus_events_history ADD CONSTRAINT refusing CHECK (record_id < 0)")
        )
    bus.start()
    bus.post({"note": SECRET}, event_name="Secret")
    eventually(
        lambda: "outcome_unwritable" in told.events() or "loop_failed" in told.events(),
        "it is told",
    )
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE bus_events_history DROP CONSTRAINT refusing"))
    assert SECRET not in "\n".join(told.lines)


@needs.server
def test_no_error_of_a_database_that_can_not_be_reached_tells_the_password(
    database_url: URL, make_service: MakeService, told: Told
) -> None:
    password = "an0ther-passw0rd"
    wrong = database_url.set(password=password)
    for url in (wrong, wrong.set(port=1), wrong.set(database="nothing_of_the_kind")):
        with pytest.raises(StickybusError) as caught:
            make_service(database=url)
        assert isinstance(caught.value, DatabaseUnreachableError)
        chain: BaseException | None = caught.value
        while chain is not None:
            assert password not in f"{chain}{chain!r}{chain.args}"
            chain = chain.__cause__
    assert password not in "\n".join(told.lines)


def test_the_text_of_a_failed_statement_tells_no_parameter(database_url: URL) -> None:
    database = Database(database_url)
    try:
        with (
            pytest.raises(Exception, match="nothing_there") as caught,
            database.begin() as connection,
        ):
            connection.execute(
                text("INSERT INTO nothing_there VALUES (:payload)"), {"payload": SECRET}
            )
        assert SECRET not in str(caught.value)
    finally:
        database.close()


@pytest.mark.parametrize("entries", [1, 2, 20])
def test_the_error_of_a_post_in_an_applications_transaction_tells_no_payload(
    engine: Engine, make_bus: MakeBus, entries: int
) -> None:
    bus = make_bus()
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE bus_events RENAME TO elsewhere"))
    postings = [
        Posting(event={"text": f"{SECRET} {number}"}, event_name="order")
        for number in range(entries)
    ]
    try:
        with pytest.raises(DBAPIError) as caught, engine.begin() as connection:
            bus.post_many(postings, connection=connection)
    finally:
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE elsewhere RENAME TO bus_events"))
    assert "bus_events" in str(caught.value)
    assert SECRET not in str(caught.value)

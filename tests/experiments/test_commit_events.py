"""ADR 0004: SQLAlchemy's events announce the end of a transaction.

Only a read on another connection proves it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    ForeignKey,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from tests import requirements as needs

metadata = MetaData()
nodes = Table("nodes", metadata, Column("name", String(64), primary_key=True))
entries = Table(
    "entries",
    metadata,
    Column("record_id", BigInteger, primary_key=True, autoincrement=False),
    Column("processing_owner", String(64), nullable=False, default="me"),
    # Checked at COMMIT where the database can: a cheap way to make a COMMIT fail.
    Column(
        "creating_owner",
        ForeignKey(nodes.c.name, deferrable=True, initially="DEFERRED"),
        nullable=True,
    ),
)
NOBODY = "nobody"


@pytest.fixture
def events(engine: Engine) -> list[str]:
    """What SQLAlchemy has announced so far, engine-wide and in order; the tables exist."""
    # MariaDB has no deferred constraints, and no syntax for them.
    if engine.dialect.name in ("mysql", "mariadb"):
        with engine.begin() as connection:
            connection.execute(
                text(
                    "CREATE TABLE entries (record_id BIGINT PRIMARY KEY, processing_owner "
                    "VARCHAR(64) NOT NULL, creating_owner VARCHAR(64), KEY owner "
                    "(processing_owner))"
                )
            )
    else:
        metadata.create_all(engine)
    announced: list[str] = []
    for name in ("commit", "rollback"):
        event.listen(engine, name, lambda _connection, name=name: announced.append(name))
    return announced


def listening(session: Session, announced: list[str]) -> Session:
    """`session`, which tells `announced` what a listener of its events learns."""
    for name in ("after_commit", "after_rollback"):
        event.listen(session, name, lambda _session, name=name: announced.append(name))
    return session


def proven(engine: Engine, *record_ids: int) -> Sequence[int]:
    """The decision's proof: one batched primary-key read on a connection of our own."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        found = select(entries.c.record_id).where(entries.c.record_id.in_(record_ids))
        return connection.scalars(found.order_by(entries.c.record_id)).all()


def post(to: Connection | Session, record_id: int, **values: str) -> None:
    to.execute(insert(entries).values(record_id=record_id, **values))


def test_the_commit_event_fires_while_the_row_is_still_invisible(
    engine: Engine, events: list[str]
) -> None:
    seen_at_the_event: list[Sequence[int]] = []
    with engine.connect() as connection:
        event.listen(
            connection, "commit", lambda _connection: seen_at_the_event.append(proven(engine, 1))
        )
        post(connection, 1)
        connection.commit()

    assert seen_at_the_event == [[]]
    assert proven(engine, 1) == [1]


def test_after_commit_fires_for_a_released_savepoint(engine: Engine, events: list[str]) -> None:
    with listening(Session(engine), events) as session:
        post(session, 1)
        with session.begin_nested():
            post(session, 2)
        assert events == ["after_commit"]
        session.rollback()

    assert proven(engine, 1, 2) == []


@pytest.mark.parametrize("join", ["conditional_savepoint", "create_savepoint", "rollback_only"])
def test_after_commit_fires_for_a_session_inside_somebody_elses_transaction(
    engine: Engine, events: list[str], join: str
) -> None:
    with engine.connect() as connection, connection.begin() as outer:
        session = listening(Session(connection, join_transaction_mode=join), events)  # type: ignore[arg-type]
        post(session, 1)
        session.commit()
        assert events == ["after_commit"]
        outer.rollback()
        session.close()

    assert proven(engine, 1) == []


@needs.postgresql
def test_after_commit_fires_though_postgresql_has_rolled_the_failed_transaction_back(
    engine: Engine, events: list[str]
) -> None:
    with listening(Session(engine), events) as session:
        post(session, 1)
        with pytest.raises(IntegrityError):
            post(session, 1)
        session.commit()  # raises nothing

    assert events == ["commit", "after_commit"]
    assert proven(engine, 1) == []


def test_the_others_commit_what_stood_before_the_failed_statement(
    engine: Engine, events: list[str]
) -> None:
    """The same calls and the same events as on PostgreSQL, and another outcome.

    Only a read can tell.
    """
    with listening(Session(engine), events) as session:
        post(session, 1)
        with pytest.raises(IntegrityError):
            post(session, 1)
        session.commit()

    assert events == ["commit", "after_commit"]
    assert proven(engine, 1) == ([] if engine.dialect.name == "postgresql" else [1])


@needs.deferred_constraints
class TestAFailedCommit:
    """Each test disposes of the pool.

    A connection of SQLite still holds the transaction (see below).
    """

    def test_fires_no_rollback_event_on_a_connection(
        self, engine: Engine, events: list[str]
    ) -> None:
        with pytest.raises(IntegrityError), engine.begin() as connection:
            post(connection, 1, creating_owner=NOBODY)

        assert events == ["commit"]
        engine.dispose()
        assert proven(engine, 1) == []

    def test_fires_no_rollback_event_on_a_session_that_commits(
        self, engine: Engine, events: list[str]
    ) -> None:
        with listening(Session(engine), events) as session:
            post(session, 1, creating_owner=NOBODY)
            with pytest.raises(IntegrityError):
                session.commit()

        assert events == ["commit"]
        engine.dispose()
        assert proven(engine, 1) == []

    def test_does_fire_after_rollback_at_the_end_of_a_begin_block(
        self, engine: Engine, events: list[str]
    ) -> None:
        session = listening(Session(engine), events)
        with pytest.raises(IntegrityError), session, session.begin():
            post(session, 1, creating_owner=NOBODY)

        assert events == ["commit", "after_rollback"]
        engine.dispose()
        assert proven(engine, 1) == []


@needs.sqlite
def test_a_failed_commit_on_sqlite_returns_to_the_pool_open_and_the_next_user_commits_it(
    engine: Engine, events: list[str]
) -> None:
    """SQLite keeps the transaction of a failed COMMIT.

    SQLAlchemy takes it for ended and resets nothing.
    """
    application = create_engine(engine.url)  # as users have it: the driver begins transactions
    event.listen(
        application, "connect", lambda driver, _record: driver.execute("PRAGMA foreign_keys = ON")
    )
    with application.connect() as connection:
        post(connection, 1, creating_owner=NOBODY)
        with pytest.raises(IntegrityError):
            connection.commit()
    assert proven(engine, 1) == []

    with application.begin() as next_user:
        next_user.execute(insert(nodes).values(name=NOBODY))

    assert proven(engine, 1) == [1]
    application.dispose()


def test_rollback_events_fire_under_autocommit_though_the_row_stands(
    engine: Engine, events: list[str]
) -> None:
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with autocommit.connect() as connection:
        post(connection, 1)
        connection.rollback()
    with listening(Session(autocommit), events) as session:
        post(session, 2)
        session.rollback()

    assert events == ["rollback", "rollback", "after_rollback"]
    assert proven(engine, 1, 2) == [1, 2]


def test_a_row_of_an_open_transaction_is_proven_by_the_sweep_once_it_commits(
    engine: Engine, events: list[str]
) -> None:
    """Forgetting an id after some tries loses nothing.

    The sweep reads rows by owner, not by memory.
    """
    sweep = select(entries.c.record_id).where(entries.c.processing_owner == "me")
    with engine.connect() as caller, engine.connect() as own:
        post(caller, 1)
        assert proven(engine, 1) == []
        assert own.scalars(sweep).all() == []
        own.rollback()

        caller.commit()
        assert own.scalars(sweep).all() == [1]


@needs.many_writers
def test_skipping_locked_rows_passes_over_an_open_transaction(
    engine: Engine, events: list[str]
) -> None:
    sweep = select(entries.c.record_id).where(entries.c.processing_owner == "me")
    with engine.connect() as caller, engine.connect() as own:
        post(caller, 1)
        assert own.scalars(sweep.with_for_update(skip_locked=True)).all() == []


@needs.mariadb
def test_an_innodb_sweep_by_owner_would_wait_for_the_callers_open_transaction(
    engine: Engine, events: list[str]
) -> None:
    """So the sweep reads ids without locks, or skips locked rows, and writes by primary key."""
    sweep = (
        update(entries)
        .where(entries.c.processing_owner == "me")
        .values(processing_owner="me again")
    )
    with engine.connect() as caller, engine.connect() as own:
        post(caller, 1)
        own.execute(text("SET innodb_lock_wait_timeout = 0"))
        with pytest.raises(OperationalError, match="1205"):
            own.execute(sweep)


def test_info_outlives_the_transaction_and_reaches_the_next_user_of_the_pooled_connection(
    engine: Engine, events: list[str]
) -> None:
    """Ids may stay in `Connection.info` until the transaction ends.

    Whoever puts them there removes them.
    """
    with engine.connect() as connection:
        connection.info["uncommitted"] = [1]
        connection.rollback()
    with Session(engine) as session:
        assert session.connection().info["uncommitted"] == [1]

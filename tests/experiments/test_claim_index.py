"""ADR 0001: a claim reads one lane, in index order, and touches only the rows that it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from sqlalchemy import Connection, Engine, text

from tests import requirements as needs
from tests.experiments.sessions import rows_locked, session_id

BATCH = 100
LANE_ROWS = 2000

NEWEST_DUE = "2026-01-01"
ONE_LANE = f"""
    SELECT record_id FROM entries WHERE lane = 'me' AND effective_date <= '{NEWEST_DUE}'
     ORDER BY effective_date, record_id LIMIT {BATCH} FOR UPDATE SKIP LOCKED"""
TWO_OWNERS = ONE_LANE.replace("lane = 'me'", "lane IN ('me', '')")
TYPE_LIST = ONE_LANE.replace("lane = 'me'", "lane = 'me' AND class_name IN ('Known', 'AlsoKnown')")
ALL_LEVELS = ONE_LANE.replace("ORDER BY", "ORDER BY priority,")


def one_level(priority: int) -> str:
    return ONE_LANE.replace("lane = 'me'", f"lane = 'me' AND priority = {priority}")


@dataclass(frozen=True)
class Claim:
    """The rows that one claim took, and its cost in InnoDB.

    `left_for_another` is a second claimer's take meanwhile.
    """

    taken: int
    rows_locked: int
    index_steps: int
    left_for_another: int
    plan: str


@pytest.fixture
def innodb(engine: Engine) -> Engine:
    with engine.begin() as connection:
        connection.execute(
            text("""
                CREATE TABLE entries (
                    record_id BIGINT AUTO_INCREMENT PRIMARY KEY,
                    lane VARCHAR(64) NOT NULL,
                    class_name VARCHAR(64) NOT NULL DEFAULT 'Known',
                    priority INT NOT NULL DEFAULT 0,
                    effective_date DATETIME(6) NOT NULL
                ) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin""")
        )
    return engine


def index(engine: Engine, columns: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"CREATE INDEX claim ON entries ({columns})"))
        connection.execute(text("ANALYZE TABLE entries"))


def fill(
    engine: Engine,
    *,
    lane: str = "me",
    name: str = "Known",
    priority: int = 0,
    year: int = 2025,
) -> None:
    """Insert `LANE_ROWS` entries, one second apart from the first of January of `year`."""
    insert = text(
        "INSERT INTO entries (lane, class_name, priority, effective_date) "
        "VALUES (:lane, :name, :priority, TIMESTAMPADD(SECOND, :second, :start))"
    )
    common = {"lane": lane, "name": name, "priority": priority, "start": f"{year}-01-01"}
    with engine.begin() as connection:
        connection.execute(insert, [common | {"second": second} for second in range(LANE_ROWS)])


def claim(engine: Engine, statement: str) -> Claim:
    """Run `statement` in an open transaction and look at it from other sessions."""
    with engine.connect() as claimer, engine.connect() as other, engine.connect() as observer:
        plan = claimer.execute(text("EXPLAIN " + statement)).mappings().one()["Extra"]
        claimer.execute(text("FLUSH STATUS"))
        taken = len(claimer.scalars(text(statement)).all())
        handlers = claimer.execute(text("SHOW SESSION STATUS LIKE 'Handler_read_%'")).all()
        return Claim(
            taken=taken,
            rows_locked=rows_locked(observer, session_id(claimer)),
            index_steps=sum(int(count) for _name, count in handlers),
            left_for_another=len(other.scalars(text(statement)).all()),
            plan=plan,
        )


@needs.mariadb
def test_a_one_lane_claim_locks_only_the_rows_that_it_takes(innodb: Engine) -> None:
    fill(innodb)
    fill(innodb, lane="")
    index(innodb, "lane, effective_date, record_id")

    own = claim(innodb, ONE_LANE)

    assert "filesort" not in own.plan
    assert own.taken == BATCH
    assert own.rows_locked == 2 * BATCH  # the index record and the row of each
    assert own.index_steps <= BATCH + 1
    assert own.left_for_another == BATCH


@needs.mariadb
def test_a_two_owner_claim_locks_both_lanes_whole_and_starves_the_next_claimer(
    innodb: Engine,
) -> None:
    fill(innodb)
    fill(innodb, lane="")
    index(innodb, "lane, effective_date, record_id")

    both = claim(innodb, TWO_OWNERS)

    assert "filesort" in both.plan
    assert both.taken == BATCH
    assert both.rows_locked == 2 * 2 * LANE_ROWS
    assert both.left_for_another == 0


@needs.mariadb
def test_a_type_list_walks_over_and_locks_everything_parked_at_the_head_of_the_lane(
    innodb: Engine,
) -> None:
    fill(innodb, name="Unknown", year=2024)
    fill(innodb)
    index(innodb, "lane, effective_date, record_id")

    listed = claim(innodb, TYPE_LIST)

    assert listed.taken == BATCH
    assert listed.rows_locked >= 2 * LANE_ROWS
    assert listed.index_steps > LANE_ROWS


@needs.mariadb
def test_moving_the_unknown_types_out_of_the_lane_makes_the_claim_cheap_again(
    innodb: Engine,
) -> None:
    fill(innodb, name="Unknown", lane="!parked", year=2024)
    fill(innodb)
    index(innodb, "lane, effective_date, record_id")

    assert claim(innodb, ONE_LANE).rows_locked == 2 * BATCH


@needs.mariadb
def test_ordering_one_statement_by_priority_reads_the_future_of_every_urgent_level(
    innodb: Engine,
) -> None:
    fill(innodb, priority=0, year=2027)
    fill(innodb, priority=1)
    index(innodb, "lane, priority, effective_date, record_id")

    everything = claim(innodb, ALL_LEVELS)

    assert everything.taken == BATCH
    assert everything.rows_locked >= 2 * LANE_ROWS


@needs.mariadb
def test_priority_level_by_level_locks_only_what_it_takes(innodb: Engine) -> None:
    fill(innodb, priority=0, year=2027)
    fill(innodb, priority=1)
    index(innodb, "lane, priority, effective_date, record_id")

    urgent, ordinary = claim(innodb, one_level(0)), claim(innodb, one_level(1))

    assert (urgent.taken, urgent.rows_locked) == (0, 2)  # the gap's end, and nothing behind it
    assert (ordinary.taken, ordinary.rows_locked) == (BATCH, 2 * BATCH)


# PostgreSQL: what a prepared statement does when the table was empty at its planning.

CLAIM = """
    WITH due AS MATERIALIZED (
        SELECT record_id FROM entries WHERE lane = $1 AND effective_date <= $2
         ORDER BY effective_date, record_id LIMIT $3 FOR UPDATE SKIP LOCKED)
    UPDATE entries SET claim_count = claim_count + 1 FROM due
     WHERE entries.record_id = due.record_id RETURNING entries.record_id"""
CLAIM_ARGUMENTS = f"('me', '{NEWEST_DUE}', {BATCH})"
FINISH = """
    WITH done (record_id, claim_count) AS (SELECT * FROM unnest($1::bigint[], $2::int[]))
    DELETE FROM entries USING done
     WHERE entries.record_id = done.record_id AND entries.claim_count = done.claim_count
    RETURNING entries.record_id"""
FINISH_ARGUMENTS = "('{1,2,3}', '{1,1,1}')"

CUSTOM_PLANS = ("SET plan_cache_mode = force_custom_plan",)
NO_DETOURS = ("SET enable_seqscan = off", "SET enable_sort = off", "SET enable_bitmapscan = off")

# The server compares a generic plan with the mean of the first five custom ones.
RUNS_UNTIL_GENERIC = 7


@dataclass(frozen=True)
class Plan:
    """How a prepared statement would run now: node types, and whether it reads the whole table."""

    nodes: frozenset[str]
    reads_whole_table: bool


class Prepared:
    """The claim and the finish, prepared in one session while the table was empty and vacuumed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        for name, statement, arguments in (
            ("claim", CLAIM, CLAIM_ARGUMENTS),
            ("finish", FINISH, FINISH_ARGUMENTS),
        ):
            connection.exec_driver_sql(f"PREPARE {name} AS {statement}")
            for _ in range(RUNS_UNTIL_GENERIC):
                connection.exec_driver_sql(f"EXECUTE {name} {arguments}")

    def plans(self) -> tuple[Plan, Plan]:
        """The plans of the claim and of the finish, for the table as it is now."""
        return self._plan("claim", CLAIM_ARGUMENTS), self._plan("finish", FINISH_ARGUMENTS)

    def generic_plans_used(self) -> int:
        used = (
            "SELECT sum(generic_plans) FROM pg_prepared_statements WHERE name IN ('claim', "
            "'finish')"
        )
        return int(self._connection.exec_driver_sql(used).scalar_one())

    def _plan(self, name: str, arguments: str) -> Plan:
        explained = self._connection.exec_driver_sql(
            f"EXPLAIN (FORMAT JSON) EXECUTE {name} {arguments}"
        )
        document = explained.scalar_one()
        tree = json.loads(document) if isinstance(document, str) else document
        nodes = list(_walk(tree[0]["Plan"]))
        return Plan(
            nodes=frozenset(str(node["Node Type"]) for node in nodes),
            reads_whole_table=any(
                node.get("Relation Name") == "entries"
                and "Scan" in str(node["Node Type"])
                and not {"Index Cond", "Recheck Cond"} & node.keys()
                for node in nodes
            ),
        )


def _walk(node: dict[str, object]) -> Iterator[dict[str, object]]:
    yield node
    children = node.get("Plans", [])
    assert isinstance(children, list)
    for child in children:
        yield from _walk(child)


@contextmanager
def prepared_while_empty(
    engine: Engine, settings: tuple[str, ...], *, vacuumed: bool = True
) -> Iterator[Prepared]:
    """A table that has run empty, and statements prepared and used in that state."""
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with autocommit.connect() as connection:
        # Autovacuum stays away: it would cure the plan some time later, in production as here.
        connection.exec_driver_sql(
            "CREATE TABLE entries (record_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, lane "
            "text NOT NULL, effective_date timestamptz NOT NULL, claim_count int NOT NULL DEFAULT "
            "0, event_json text) WITH (autovacuum_enabled = false)"
        )
        connection.exec_driver_sql(
            "CREATE INDEX claim ON entries (lane, effective_date, record_id)"
        )
        if vacuumed:
            connection.exec_driver_sql("VACUUM ANALYZE entries")
        for setting in settings:
            connection.exec_driver_sql(setting)
        yield Prepared(connection)


def fill_to(engine: Engine, rows: int) -> None:
    """Raise the table to `rows` rows without analysing it: half in lane `me`, half unowned."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO entries (lane, effective_date, event_json) SELECT CASE WHEN mod(n, 2) = "
            "0 THEN 'me' ELSE '' END, timestamptz '2025-01-01' + n * interval '1 s', repeat('x', "
            f"100) FROM generate_series((SELECT count(*) + 1 FROM entries), {rows}) AS n"
        )


@needs.postgresql
def test_plans_prepared_on_an_emptied_table_keep_scanning_it_when_it_is_full(
    engine: Engine,
) -> None:
    with prepared_while_empty(engine, ()) as prepared:
        fill_to(engine, 50_000)
        claimed, finished = prepared.plans()

        assert prepared.generic_plans_used() > 0
        assert {"Seq Scan", "Sort"} <= claimed.nodes
        assert claimed.reads_whole_table
        assert "Seq Scan" in finished.nodes


@needs.postgresql
def test_custom_plans_alone_still_sort_a_lane_of_moderate_size(engine: Engine) -> None:
    with prepared_while_empty(engine, CUSTOM_PLANS) as prepared:
        fill_to(engine, 1000)
        claimed, _finished = prepared.plans()

        assert prepared.generic_plans_used() == 0
        assert "Sort" in claimed.nodes


@needs.postgresql
def test_forbidding_scans_and_sorts_alone_keeps_a_generic_walk_over_the_whole_table(
    engine: Engine,
) -> None:
    with prepared_while_empty(engine, NO_DETOURS) as prepared:
        fill_to(engine, 50_000)
        claimed, finished = prepared.plans()

        assert prepared.generic_plans_used() > 0
        assert (
            claimed.reads_whole_table
        )  # an index scan without a condition: enable_seqscan can't stop it
        assert finished.reads_whole_table


@needs.postgresql
def test_custom_plans_without_scans_and_sorts_read_only_the_claimed_rows_at_every_size(
    engine: Engine,
) -> None:
    with prepared_while_empty(engine, CUSTOM_PLANS + NO_DETOURS) as prepared:
        for rows in (1000, 50_000):
            fill_to(engine, rows)
            for plan in prepared.plans():
                assert not {"Seq Scan", "Sort", "Bitmap Heap Scan"} & plan.nodes, (rows, plan)
                assert not plan.reads_whole_table, (rows, plan)
        assert prepared.generic_plans_used() == 0


@needs.postgresql
def test_a_table_that_was_never_vacuumed_is_not_yet_planned_as_empty(engine: Engine) -> None:
    """The trap needs a queue that has drained once.

    Fresh tables are planned as ten pages, not as none.
    """
    with prepared_while_empty(engine, (), vacuumed=False) as prepared:
        claimed, _finished = prepared.plans()

        assert "Seq Scan" not in claimed.nodes


@needs.postgresql
def test_psycopg_prepares_after_five_runs_and_the_server_goes_generic_after_five_more(
    engine: Engine,
) -> None:
    used = (
        "SELECT custom_plans, generic_plans FROM pg_prepared_statements WHERE statement LIKE "
        "'SELECT CAST%%'"
    )
    with engine.connect() as connection:
        for run in range(1, 13):
            connection.execute(text("SELECT CAST(:run AS integer)"), {"run": run})
            plans = connection.exec_driver_sql(used).all()
            # The sixth run prepares; the first five prepared runs have plans of their own.
            assert plans == ([] if run <= 5 else [(min(run - 5, 5), max(run - 10, 0))])

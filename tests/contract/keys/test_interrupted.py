"""Keyed posts that an exception cuts off anywhere: no key without its entry, and no entry twice."""

from __future__ import annotations

from contextlib import suppress

import pytest
from sqlalchemy import Engine, text

from stickybus import Posting
from tests import requirements as needs
from tests.contract.cluster import Cluster
from tests.contract.harness import Order
from tests.contract.interrupted.interrupts import Interrupt, Places, was_interrupted

STEP = 3
"""Every third line, so that the test is short."""


@needs.any_database
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("lent", [True, False])
def test_an_interrupted_post_leaves_a_key_with_its_entry_or_neither(
    cluster: Cluster, engine: Engine, *, lent: bool
) -> None:
    bus = cluster.peer("poster").bus

    def post(place: int | None, number: int) -> Interrupt:
        """Post two keys, and commit whatever has happened."""
        interrupt = Interrupt(Places.LINES, place)
        postings = [Posting(event=Order(number), key=f"{number}-{key}") for key in "ab"]
        with engine.connect() as connection:
            given = connection if lent else None
            try:
                interrupt.during(lambda: bus.post_many(postings, connection=given))
            except BaseException as error:
                if not was_interrupted(error):
                    raise
            with suppress(Exception):
                connection.commit()
        return interrupt

    whole = post(None, 0)
    for number in range(1, 4):  # until connections are open, and statements known
        whole = post(None, number)
    for number, place in enumerate(range(0, whole.passed, STEP), 10):
        post(place, number)
        with engine.connect() as connection:
            orphans = "SELECT count(*) FROM queue_keys WHERE record_id IS NULL OR record_id NOT IN "
            missing = connection.execute(text(orphans + "(SELECT record_id FROM bus_events)"))
            assert missing.scalar() == 0, place
            counts = [
                connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
                for table in ("queue_keys", "bus_events")
            ]
        assert counts[0] == counts[1], place
        assert counts[0] % 2 == 0, place

"""All operations, with the steps of their plans that are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from queue_core.model.lanes import ANY_NODE, SUSPECT
from sql.doctor.base import Step
from tests.contract.plans.statements import Tables
from tests.contract.plans.tables import OWN


@dataclass(frozen=True)
class Operation:
    """A statement of the engine; `right` are steps of its plan that are right, with the reason."""

    name: str
    work: Callable[[Tables], object]
    right: frozenset[Step] = frozenset()


_IN_ORDER = frozenset({Step.WALK})
"""The rows are wanted in the order of their ids, and the page's end stops the walk."""
_FEW = frozenset({Step.SORT})
"""What has the keys is sorted by its ids."""
OPERATIONS = (
    *(
        Operation(f"claim from {lane!r}", partial(Tables.claim, lane=lane))
        for lane in (OWN, ANY_NODE, SUSPECT)
    ),
    Operation("finish", Tables.finish),
    Operation("give back", Tables.give_back),
    Operation("retry", Tables.retry),
    Operation("reap", Tables.reap),
    Operation("sweep", Tables.sweep),
    Operation("page of the parked", Tables.park),
    Operation("places of a limited queue", Tables.place, _IN_ORDER),
    Operation("reserve of a limited queue", Tables.reserve, _IN_ORDER),
    Operation("places of limit keys", Tables.place_of_key, _IN_ORDER),
    Operation("look at limit keys", Tables.look_at_keys, _IN_ORDER | _FEW),
    Operation("lanes and page of the paused", Tables.bring_back, _IN_ORDER),
    # The lowest lane is the first entry of the index; what waits is grouped by its queue's name.
    Operation("look at the lanes", Tables.look, _IN_ORDER | _FEW),
    Operation("read what was announced", Tables.announced),
    Operation("remove", Tables.remove),
    Operation("change", Tables.change),
    Operation("wait for others", Tables.wait),
    # A finding for each key: what was found is grouped.
    Operation("look for what hands have deleted", Tables.miss, _FEW),
    Operation("show by id", Tables.show),
    Operation("search by keys", partial(Tables.search, past=False), _FEW),
    Operation("search history by keys", partial(Tables.search, past=True), _FEW),
    Operation("forget what waits", partial(Tables.forget, past=False), _FEW),
    Operation("forget what has ended", partial(Tables.forget, past=True), _FEW),
    Operation("dead letters", Tables.dead_letters, _IN_ORDER | _FEW),
    Operation("window of what waits", partial(Tables.windows, past=False), _IN_ORDER),
    Operation("window of history", partial(Tables.windows, past=True), _IN_ORDER),
    Operation("reschedule", Tables.reschedule),
    Operation("newest history", Tables.newest, _IN_ORDER),
    Operation("page of history", Tables.history_page, _IN_ORDER),
    Operation("delete a page of history", Tables.delete_history),
)

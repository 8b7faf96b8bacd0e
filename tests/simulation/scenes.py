"""Lists of steps, each to the very place where one planted bug shows.

Random steps would take long to get there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.simulation.settings import Settings
from tests.simulation.steps import (
    Behaviour,
    Change,
    Ending,
    Fault,
    Go,
    Jump,
    Kill,
    Leave,
    Link,
    Outage,
    Pass,
    Post,
    Start,
    Step,
)


@dataclass(frozen=True)
class Scene:
    """What happens, by the settings, to the steps' end."""

    steps: list[Step]
    settings: Settings = field(default_factory=Settings)


def _post(
    process: str,
    *keys: int,
    fails: int = 0,
    boundaries: int = 1,
    poison: bool = False,
    ending: Ending = Ending.OWN,
    fault: Fault = Fault.NONE,
    stops: int | None = None,
    link: Link = Link.NONE,
) -> Post:
    behaviour = Behaviour(fails, boundaries, poison)
    return Post(process, "bus", keys, behaviour, ending, stops=stops, fault=fault, link=link)


def _claim(process: str) -> Go:
    return Go(process, "bus.claim")


def _handle(process: str, thread: int = 0, stops: int | None = None) -> Go:
    return Go(process, f"bus.handler{thread}", stops)


def _finish(process: str, fault: Fault = Fault.NONE) -> Go:
    return Go(process, "bus.finish", None, fault)


_IN_HAND: list[Step] = [
    Start("a1"),
    Start("b1"),
    _post("a1", 1, boundaries=2),
    Pass(32.0, ("b1",)),
    _claim("b1"),
    _handle("b1", stops=1),
]
"""a1 has an entry in its pool, not started, when it freezes past its lease. b1 runs it."""

_RETRIED_TWICE: list[Step] = [
    Start("a1"),
    _post("a1", 1, fails=1, boundaries=2),
    _handle("a1", stops=2),
    _handle("a1"),
    _finish("a1", Fault.COMMIT_LOST),
    Pass(9.0, ("a1",)),
    _claim("a1"),
    _handle("a1", stops=1),
    _finish("a1"),
    Pass(9.0, ("a1",)),
    _claim("a1"),
    _handle("a1", 1, stops=1),
]
"""A retry is written, without an answer, and written again when the entry runs anew."""

_PAST_ITS_LIMIT: list[Step] = [
    Start("a1"),
    _post("a1", 1, boundaries=3),
    _handle("a1", stops=1),
    Pass(9.0, ("a1",)),
    _claim("a1"),
    _finish("a1"),
    Pass(9.0, ("a1",)),
    _claim("a1"),
    _handle("a1", 1, stops=1),
    _handle("a1"),
    _finish("a1"),
]
"""A handler is past its `max_run_seconds`, and ends when its entry runs anew."""
_LIMITED = Settings(max_run_seconds=4.0)

_UNKNOWN_COMMIT: list[Step] = [
    Start("a1"),
    _post("a1", 1, fault=Fault.COMMIT_LOST),
    Pass(9.0, ("a1",)),
    _claim("a1"),
]

_PAUSED: list[Step] = [
    Start("a1"),
    Start("b1"),
    Change("b1", "bus", "pause", 3),
    _post("b1", 1),
    _handle("b1"),
    _finish("b1"),  # it is set aside
    Pass(5.0, ("a1", "b1")),
    _claim("a1"),
]
"""A pause sets an entry aside, and has ended by the time that another node looks."""

_LIMITED_BUS: list[Step] = [
    Start("a1"),
    Start("b1"),
    Change("b1", "bus", "limit", 1),
    Pass(2.0, ("a1", "b1")),
    _claim("a1"),
    _claim("b1"),
    _post("a1", 1),
    _post("a1", 2),
    _post("b1", 3),
]
"""Two nodes have heard that one entry runs at a time, and both have posted."""


def _reserved(limit: int) -> list[Step]:
    """A node is alone, has reserved as many places as the limit has, and runs one entry."""
    return [
        Start("a1"),
        Change("a1", "bus", "limit", limit),
        Pass(2.0, ("a1",)),
        _claim("a1"),
        _post("a1", 1, boundaries=2),
        _claim("a1"),
        _handle("a1", stops=1),
    ]


def _died_with(link: Link) -> list[Step]:
    """A node has died that ran the first of two such entries, and another one has reaped it."""
    return [
        Start("a1"),
        Start("b1"),
        _post("a1", 1, 2, link=link),
        _claim("a1"),
        _handle("a1", stops=1),
        Kill("a1"),
        Pass(32.0, ("b1",)),
    ]


def _begun(link: Link = Link.NONE) -> list[Step]:
    """A handler has begun."""
    return [
        Start("a1"),
        _post("a1", 1, boundaries=2, link=link),
        _claim("a1"),
        _handle("a1", stops=1),
    ]


_BESIDE: list[Step] = [_claim("a1"), _handle("a1", 1)]
"""Another thread takes what it finds."""

SCENES: dict[str, Scene] = {
    "born_claimed_past_a_limit": Scene(_LIMITED_BUS),
    "limit_known_from_before": Scene(
        [
            Start("a1"),
            Change("a1", "bus", "limit", 3),
            _post("a1", 1, boundaries=2),
            _claim("a1"),
            _handle("a1", stops=1),
            Change("a1", "bus", "limit", 1),
            _post("a1", 2),
            _claim("a1"),
        ]
    ),
    "places_counted_apart": Scene(
        [*_LIMITED_BUS, Go("a1", "bus.claim", 3), _claim("b1"), _claim("a1")]
    ),
    "reserve_taken_for_granted": Scene(
        [*_reserved(4), _post("a1", 2), Start("b1"), Change("b1", "bus", "limit", 1), _claim("a1")]
    ),
    "reserve_after_another_limit": Scene(
        [*_reserved(4), _post("a1", 2), Start("b1"), Change("b1", "bus", "limit", 1), _claim("a1")]
    ),
    "reserve_without_count": Scene([*_reserved(2), _post("a1", 2), _post("a1", 3), _claim("a1")]),
    "reserve_in_doubt": Scene(
        [
            *_reserved(4),
            _post("a1", 2),
            _post("a1", 3),
            Go("a1", "bus.claim", None, Fault.COMMIT_LOST),
            _post("a1", 4),
            _post("a1", 5),
            Pass(2.0, ("a1",)),
            _claim("a1"),
        ]
    ),
    "reserve_of_the_other_unseen": Scene(
        [*_reserved(2), Start("b1"), _post("b1", 2), _post("b1", 3), _claim("b1"), _claim("a1")]
    ),
    "sweep_after_a_leave": Scene(
        [
            Start("a1"),
            Start("b1"),
            Go("a1", "bus.claim", 1),
            Leave("a1", fault=Fault.COMMIT_LOST),
            Start("a2"),
            _post("a2", 1),
        ]
    ),
    "fence_removed": Scene(_RETRIED_TWICE),
    "finish_without_claim": Scene(_PAST_ITS_LIMIT, _LIMITED),
    "fence_of_the_node_table": Scene(_PAST_ITS_LIMIT, _LIMITED),
    "release_leaves_the_fence": Scene(_PAST_ITS_LIMIT, replace(_LIMITED, subscribers=2)),
    "exactly_once_unfenced": Scene(
        [
            Start("a1"),
            Start("b1"),
            _post("a1", 1),
            _handle("a1", stops=1),
            Pass(32.0, ("b1",)),
            _claim("b1"),
            _handle("b1"),
            _handle("a1"),
        ],
        Settings(exactly_once=1),
    ),
    "recorded_success_forgotten": Scene(
        [
            Start("a1"),
            _post("a1", 1),
            _handle("a1", stops=2),  # the first handler's transaction is about to commit
            Pass(9.0, ("a1",)),
            _claim("a1"),  # its run is cut
            _handle("a1"),
            _finish("a1"),
        ],
        Settings(subscribers=2, exactly_once=2, max_run_seconds=4.0),
    ),
    "exactly_once_runs_again": Scene(
        [
            Start("a1"),
            Start("d1"),
            _post("d1", 1),
            _handle("d1", stops=1),
            Pass(32.0, ("a1",)),
            _claim("a1"),
            _handle("a1", stops=1),
            _post("d1", 2, ending=Ending.COMMIT, stops=2),
            _handle("d1", stops=8),
            Pass(18.0, ("a1", "d1")),
        ],
        Settings(exactly_once=1),
    ),
    "epoch_not_raised": Scene(
        [
            Start("a1"),
            _post("a1", 1, boundaries=2),
            _handle("a1", stops=1),
            Start("a2"),
            *[step for _ in range(5) for step in (Pass(4.0, ()), Go("a2", "start"))],
            _claim("a2"),
            _handle("a2", stops=1),
        ]
    ),
    "start_without_lease": Scene([*_IN_HAND, _handle("a1")]),
    "lease_of_the_claim_forgotten": Scene([*_IN_HAND, Go("a1", "beat"), _handle("a1")]),
    "beat_of_a_dead_node": Scene([*_IN_HAND, Go("a1", "beat"), _handle("a1")]),
    "lease_from_the_answer": Scene(
        [
            Start("a1"),
            Start("b1"),
            _post("a1", 1, boundaries=2),
            Go("a1", "beat", 3),
            Pass(14.0, ("b1",)),
            Go("a1", "beat"),
            Pass(7.0, ("b1",)),
            _claim("b1"),
            _handle("b1", stops=1),
            _handle("a1"),
        ]
    ),
    "beat_number_used_again": Scene(
        [
            Start("a1"),
            Start("b1"),
            Pass(5.0, ("a1", "b1")),
            Go("a1", "beat", None, Fault.COMMIT_LOST),
            Pass(8.0, ("b1",)),
            Go("a1", "beat"),
            Pass(12.0, ("b1",)),
        ]
    ),
    "name_taken_at_once": Scene([Start("a1"), Start("a2")]),
    "lease_judged_by_dates": Scene(
        [Start("a1"), Start("b1"), Jump("b1", 300.0), Pass(2.0, ("a1", "b1"))]
    ),
    "lease_ends_at_a_date": Scene([*_IN_HAND, Jump("a1", -300.0), _handle("a1")]),
    "outage_not_noticed": Scene(
        [
            Start("a1"),
            Start("b1"),
            Pass(6.0, ("a1", "b1")),
            Outage(begins=True),
            Pass(20.0, ("a1", "b1")),
            Outage(begins=False),
            Pass(2.0, ("b1",)),
        ]
    ),
    "gap_judged_by_the_own_lease": Scene(
        [
            Start("a1"),
            Start("b1"),
            Pass(21.0, ("a1", "b1")),
            Outage(begins=True),
            Pass(17.0, ("a1",)),
            Outage(begins=False),
            Pass(3.0, ("b1",)),
        ],
        Settings(long_leases="b"),
    ),
    "reaper_without_lock": Scene(
        [
            Start("a1"),
            Start("b1"),
            _post("a1", 1),
            _handle("a1", stops=1),
            Kill("a1"),
            Pass(14.0, ("b1",)),
            Pass(2.0, ()),
            Go("b1", "beat"),
            Go("b1", "reap", 6),
            Start("a2"),
            _post("a2", 2, boundaries=2),
            _handle("a2", stops=1),
            Go("b1", "reap"),
            _claim("b1"),
            _handle("b1"),
            _finish("b1"),
            _claim("b1"),
            _handle("b1", stops=1),
        ]
    ),
    "reaper_leaves_what_ran": Scene(
        [
            Start("a1"),
            Start("b1"),
            _post("a1", 1),
            _handle("a1", stops=1),
            Kill("a1"),
            Pass(32.0, ("b1",)),
        ]
    ),
    "retries_lost_at_restart": Scene(
        [
            Start("a1"),
            _post("a1", 1, fails=2),
            _handle("a1"),
            _finish("a1"),
            _claim("a1"),
            _handle("a1", stops=1),
            Kill("a1"),
            Start("a2"),
        ]
    ),
    "crash_not_counted": Scene([Start("a1"), _post("a1", 1, poison=True)]),
    "signal_before_commit": Scene(
        [Start("a1"), _post("a1", 1, fault=Fault.COMMIT_FAILED), _handle("a1")]
    ),
    "hand_over_on_the_commit_event": Scene(
        [
            Start("a1"),
            _post("a1", 1, ending=Ending.COMMIT, fault=Fault.COMMIT_FAILED),
            _handle("a1"),
        ]
    ),
    "capacity_not_given_back": Scene([Start("a1"), *(_post("a1", key) for key in range(1, 20))]),
    "ledger_without_bound": Scene([Start("a1"), _post("a1", *range(1, 31))]),
    "waiting_forgotten": Scene(
        [Start("a1"), _post("a1", *range(1, 16))], Settings(queue_capacity=30)
    ),
    "sweep_against_the_ledger": Scene(
        [
            Start("a1"),
            _post("a1", 1, boundaries=3),
            _handle("a1", stops=1),
            Pass(9.0, ("a1",)),
            _claim("a1"),
            _claim("a1"),
            _handle("a1", 1, stops=1),
        ]
    ),
    "sweep_beside_a_claim": Scene(
        [
            Start("a1"),
            _post("a1", *range(1, 16)),
            _claim("a1"),
            *[_handle("a1")] * 3,
            Pass(8.01, ("a1",)),  # a sweep is due
            Go("a1", "bus.finish", 2),  # its claim has committed, the ledger doesn't know of it
            Go("a1", "bus.claim", 12),  # the sweep has read the table, and is about to give back
            _finish("a1"),
            *[_handle("a1")] * 3,
            _handle("a1", stops=1),
            *[_claim("a1")] * 3,
            _finish("a1"),
            _claim("a1"),
            *[_handle("a1", 1)] * 12,
        ],
        Settings(queue_capacity=12),
    ),
    "no_sweep": Scene(_UNKNOWN_COMMIT),
    "failed_post_kept": Scene(_UNKNOWN_COMMIT),
    "failure_lost_with_the_handled": Scene(
        [Start("a1"), _post("a1", 1, fails=4)], Settings(history="failures")
    ),
    "paused_left_behind": Scene(_PAUSED),
    "paused_to_anybody": Scene(_PAUSED),
    "key_lost_at_the_reaping": Scene([*_died_with(Link.KEY), _post("b1", 3, link=Link.KEY)]),
    "key_taken_blindly": Scene(
        [Start("a1"), _post("a1", 1, link=Link.KEY), _post("a1", 2, link=Link.KEY)]
    ),
    "order_lost_at_the_reaping": Scene(_died_with(Link.ORDER)),
    "order_key_started_by_each_post": Scene([Start("a1"), _post("a1", 1, 2, link=Link.ORDER)]),
    "order_keys_of_callers_forgotten": Scene(
        [Start("a1"), _post("a1", 1, link=Link.ORDER, ending=Ending.COMMIT)]
    ),
    "order_key_goes_on_at_a_failure": Scene(
        [
            Start("a1"),
            _post("a1", 1, 2, fails=1, link=Link.ORDER),
            _claim("a1"),
            _handle("a1"),
            _finish("a1"),
        ]
    ),
    "order_key_starts_what_waits": Scene(
        [*_begun(), _post("a1", 2, link=Link.ORDER_AFTER), *_BESIDE]
    ),
    "order_key_passes_over_what_waits": Scene(
        [
            *_begun(),
            _post("a1", 2, link=Link.ORDER_AFTER),
            _post("a1", 3, link=Link.ORDER),
            *_BESIDE,
        ]
    ),
    "order_key_forgets_what_is_released": Scene(
        [Start("a1"), _post("a1", 1), _post("a1", 2, link=Link.ORDER_AFTER)]
    ),
    "outcomes_of_all_claims": Scene(
        [
            Start("a1"),
            _post("a1", 1, 2, fails=1, boundaries=3, link=Link.ORDER),
            _claim("a1"),
            _handle("a1", stops=1),
            Pass(9.0, ("a1",)),
            _claim("a1"),
            _finish("a1"),
            Pass(9.0, ("a1",)),
            _claim("a1"),
            _handle("a1"),
            _handle("a1", 1),
            _finish("a1"),
        ],
        _LIMITED,
    ),
    "links_not_looked_after": Scene(
        [Start("a1"), _post("a1", 1), _post("a1", 2, link=Link.AFTER, ending=Ending.COMMIT)]
    ),
    "wait_over_at_the_first_look": Scene([*_begun(), _post("a1", 2, link=Link.AFTER), *_BESIDE]),
    "group_complete_at_its_seal": Scene([*_begun(Link.GROUP), *_BESIDE]),
    "group_does_not_count": Scene([Start("a1"), _post("a1", 1, link=Link.GROUP)]),
}
"""By planted bug. With it, the scene breaks an invariant; without, it breaks none."""

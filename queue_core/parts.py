"""The parts of one bus or service, put together. All wiring stands here."""

from __future__ import annotations

from queue_core.claim_loop import ClaimLoop
from queue_core.claiming.aside_look import AsideLook
from queue_core.claiming.backlog_watch import BacklogWatch
from queue_core.claiming.claimer import Claimer
from queue_core.claiming.hint_listener import HintListener
from queue_core.claiming.hint_sender import HintSender
from queue_core.claiming.limited_keys import LimitedKeys
from queue_core.claiming.limited_lanes import LimitedLanes
from queue_core.claiming.linked_looks import LinkedLooks
from queue_core.claiming.ordered_keys import OrderedKeys
from queue_core.claiming.parked_lane import ParkedLane
from queue_core.claiming.paused_lanes import PausedLanes
from queue_core.claiming.repeated_look import RepeatedLook
from queue_core.finishing.finisher import Finisher
from queue_core.holding.holdings import Holdings
from queue_core.lifecycle import Lifecycle
from queue_core.membership import Membership
from queue_core.metrics import Metrics
from queue_core.posting.announced_commits import AnnouncedCommits
from queue_core.posting.posted_hand_over import PostedHandOver
from queue_core.posting.poster import Poster
from queue_core.reading.depths import TableBacklogs
from queue_core.running.admission import QueueAdmission
from queue_core.running.context_restored import restoring
from queue_core.running.exactly_once import ExactlyOnce
from queue_core.running.failed_hooks import FailedHooks
from queue_core.running.handler_pool import HandlerPool
from queue_core.running.pauses_in_force import PausesInForce
from queue_core.running.pools import Pools
from queue_core.running.runner import Runner
from queue_core.running.subscriber import Router
from queue_core.running.watchdog import Watchdog
from queue_core.runtime.signal import Signal
from queue_core.storage.store import Store


class Parts:
    """`router` knows the handlers."""

    def __init__(self, store: Store, router: Router, metrics: Metrics) -> None:
        pauses = PausesInForce(store.clock)
        holdings = Holdings(store, pauses.lane_of)
        backlogs = TableBacklogs(store)
        awake = Signal()
        hints = HintSender(store, store.config.table)

        def new_pool() -> HandlerPool:
            runner = Runner(
                store.config,
                store.clock,
                store.codecs,
                QueueAdmission(router, pauses, holdings.lane_without_place),
                holdings,
                pauses=pauses,
                validators=store.types.validators,
                backlogs=backlogs,
                complete=finisher.complete,
                around_handler=[metrics.around_handler, *restoring(store.context)],
                exactly_once=exactly_once,
            )
            return HandlerPool(store.config, store.clock, router, runner, claimer)

        pools = Pools(new_pool)
        self.failed_hooks = FailedHooks(pools)
        claimer = Claimer(holdings, metrics, pools, awake)
        finisher = Finisher(holdings, metrics, claimer, self.failed_hooks, hints=hints)
        exactly_once = ExactlyOnce(store, holdings)
        hand_over = PostedHandOver(holdings, pools, claimer)
        announced = AnnouncedCommits(holdings, hand_over, claimer)
        ordered = RepeatedLook(holdings, claimer, OrderedKeys(store, claimer).look)
        linked_looks = RepeatedLook(holdings, claimer, LinkedLooks(store, claimer).look)
        self.parked = ParkedLane(holdings, router, claimer, self.failed_hooks)
        asides = AsideLook(store)
        paused = PausedLanes(holdings, pauses, claimer, asides)
        limited_keys = LimitedKeys(holdings, claimer, hints)
        limited = LimitedLanes(
            holdings,
            pools,
            claimer,
            lambda: router.describe()["queues"],
            asides,
            keys=limited_keys,
        )
        watchdog = Watchdog(store.config, finisher.complete)
        self.backlog = BacklogWatch(store, router, pools)
        claim_loop = ClaimLoop(
            holdings,
            claimer,
            announced,
            ordered=ordered,
            linked=linked_looks,
            parked=self.parked,
            paused=paused,
            limited=limited,
            limited_keys=limited_keys,
            pools=pools,
            watchdog=watchdog,
            backlog=self.backlog,
            awake=awake,
        )
        self.poster = Poster(
            holdings,
            claimer,
            hand_over,
            announced,
            ordered=ordered,
            linked_looks=linked_looks,
            limited_keys=limited_keys,
            hints=hints,
            metrics=metrics,
            around_post=[metrics.around_post],
        )
        membership = Membership(
            store,
            router,
            holdings=holdings,
            pools=pools,
            claimer=claimer,
            parked=self.parked,
            paused=paused,
            limited=limited,
            finisher=finisher,
            failed_hooks=self.failed_hooks,
            hints=hints,
            metrics=metrics,
        )
        self.lifecycle = Lifecycle(
            store,
            membership=membership,
            holdings=holdings,
            pools=pools,
            claimer=claimer,
            claim_loop=claim_loop,
            paused=paused,
            limited=limited,
            finisher=finisher,
            hints=hints,
            hint_listener=HintListener(store, store.config.table, claim_loop, claimer.looks_often),
        )

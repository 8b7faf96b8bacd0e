"""Feeds whose listener an exception from outside cuts off."""

from __future__ import annotations

import threading
from types import FunctionType

import pytest

from queue_core.finishing.feeds import Feed
from queue_core.model.states import State
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, ended, states
from tests.contract.interrupted.interrupts import Interrupt, InterruptedHereError, Places

AMONG = [
    function.__code__
    for kind in (Feed, threading.Condition)
    for function in vars(kind).values()
    if isinstance(function, FunctionType)
]


@pytest.mark.parametrize("places", list(Places))
def test_a_listener_that_is_cut_off_holds_up_no_outcome(make_bus: MakeBus, places: Places) -> None:
    bus = make_bus()
    bus.subscribe(Order, Recorder())
    feed = bus.listen("all", capacity=10)
    whole = Interrupt(places, among=AMONG)
    assert whole.during(feed.get) is None
    assert whole.passed
    for place in range(whole.passed):
        with pytest.raises(InterruptedHereError):
            Interrupt(places, place, AMONG).during(feed.get)
    bus.start()
    bus.post(Order(1))
    assert states(ended(bus)) == [State.PROCESSED]
    found = feed.get(20.0)
    assert found is not None
    assert found.state is State.PROCESSED

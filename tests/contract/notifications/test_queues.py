"""Queues of notifications: created, started, stopped and deleted, each with its own."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from sql.statements import nodes
from stickybus import (
    Entry,
    InvalidPostError,
    LifecycleError,
    Mode,
    NameTooLongError,
    NotificationQueue,
    NotificationService,
    Posting,
    QueueExistsError,
    QueueNotFoundError,
    State,
)
from tests.contract.conftest import MakeService
from tests.contract.harness import (
    Order,
    Recorder,
    database_of,
    ended,
    engine_of,
    eventually,
    lifecycle_of,
    states,
)
from tests.contract.notifications.punctual import FAR, orders


def test_queues_are_created_listed_got_and_deleted(service: NotificationService) -> None:
    one = service.create_queue("billing", "dunning", Recorder())
    two = service.create_queue("billing", "archive", Recorder())

    assert service.queues() == [two, one]
    assert service.get_queue("billing", "dunning") is one
    service.delete_queue("billing", "dunning")
    assert service.queues() == [two]
    service.create_queue("billing", "dunning", Recorder())
    service.delete_queue("billing:dunning")
    assert service.queues() == [two]


def test_a_duplicate_and_a_missing_queue_are_errors_that_name_it(
    service: NotificationService,
) -> None:
    service.create_queue("billing", "dunning", Recorder())

    with pytest.raises(QueueExistsError, match="'billing:dunning' exists already"):
        service.create_queue("billing", "dunning", Recorder())
    for missing in (service.get_queue, service.delete_queue):
        with pytest.raises(
            QueueNotFoundError, match=r"no queue 'billing:other'.*only: billing:dunning"
        ):
            missing("billing", "other")


@pytest.mark.parametrize("name", ["", "a:b", "x" * 65, "nul\0"])
def test_a_name_that_no_queue_can_have_is_refused(service: NotificationService, name: str) -> None:
    with pytest.raises((InvalidPostError, NameTooLongError)):
        service.create_queue("billing", name, Recorder())
    with pytest.raises((InvalidPostError, NameTooLongError)):
        service.create_queue(name, "dunning", Recorder())
    assert service.queues() == []


def test_queues_of_long_and_odd_names_do_not_mix(service: NotificationService) -> None:
    names = ["x" * 64, "100%'\";--", "späte 🚂", "Dunning", "dunning", "dunning "]
    recorders = {name: Recorder() for name in names}
    queues = [service.create_queue("s" * 64, name, recorders[name]) for name in names]
    service.start()

    for number, queue in enumerate(queues):
        queue.schedule({"number": number}, delay=0)

    for number, (name, queue) in enumerate(zip(names, queues, strict=True)):
        assert recorders[name].wait() == [{"number": number}]
        ended(queue)
        assert recorders[name].calls == 1


def test_queues_of_two_services_on_one_table_get_only_their_own(make_service: MakeService) -> None:
    recorders = [Recorder(), Recorder()]
    services = [make_service(poll_interval_seconds=0.1) for _ in recorders]
    queues = [
        service.create_queue(name, "dunning", recorder, event_types=[Order])
        for service, name, recorder in zip(services, ("billing", "crm"), recorders, strict=True)
    ]
    for service in services:
        service.start()

    for number, queue in enumerate(queues):
        for _ in range(5):
            queue.schedule(Order(number), delay=0)

    for number, (queue, recorder) in enumerate(zip(queues, recorders, strict=True)):
        recorder.wait(5)
        assert orders(ended(queue, 5)) == [number] * 5
        assert recorder.numbers() == [number] * 5


def test_counts_and_reads_do_not_mix_queues(
    service: NotificationService, queue: NotificationQueue
) -> None:
    other = service.create_queue("billing", "other", Recorder(), event_types=[Order])
    queue.schedule(Order(1), delay=0, search_key2=5)
    queue.schedule(Order(2), delay=FAR, search_key2=5)
    for _ in range(3):
        other.schedule(Order(3), delay=0, search_key2=5)

    assert (queue.ready_count(), other.ready_count()) == (1, 3)
    assert orders(queue.find(search_key2=5)) == [1, 2]
    assert orders(other.find(search_key2=5)) == [3, 3, 3]


def test_a_stopped_queue_gets_nothing_until_it_starts_and_then_what_waited(
    service: NotificationService,
) -> None:
    stopped, running = Recorder(), Recorder()
    queue = service.create_queue("billing", "dunning", stopped, event_types=[Order])
    other = service.create_queue("billing", "other", running, event_types=[Order])
    service.start()
    queue.stop()

    queue.schedule(Order(1), delay=0)
    eventually(lambda: queue.find()[0].lane == "!parked", "the notification is set aside")
    other.schedule(Order(2), delay=0)
    assert running.wait() == [Order(2)]  # nothing stuck before it
    assert stopped.calls == 0
    queue.start()

    assert stopped.wait() == [Order(1)]
    assert states(ended(queue)) == [State.PROCESSED]


def test_what_was_scheduled_on_a_deleted_queue_is_delivered_when_it_is_created_again(
    service: NotificationService,
) -> None:
    queue = service.create_queue("billing", "dunning", Recorder(), event_types=[Order])
    service.start()
    queue.schedule(Order(1), delay=0.1)
    service.delete_queue("billing", "dunning")
    eventually(lambda: queue.find()[0].lane == "!parked", "the notification is set aside")
    recorder = Recorder()

    service.create_queue("billing", "dunning", recorder, event_types=[Order])

    assert recorder.wait() == [Order(1)]


def test_a_queue_that_is_deleted_while_its_entry_is_read_does_not_end_it_unhandled(
    service: NotificationService,
) -> None:
    handler = Recorder()
    queue = service.create_queue("billing", "dunning", handler, event_types=[Order])
    codecs = engine_of(service).store.codecs
    decode = codecs.decode

    def deleted_meanwhile(entry: Entry) -> object:
        service.delete_queue("billing", "dunning")
        return decode(entry)

    vars(codecs)["decode"] = deleted_meanwhile
    service.start()
    queue.schedule(Order(1), delay=0)

    [entry] = ended(queue)
    assert (handler.calls, entry.processing_state) == (1, State.PROCESSED)


def served(service: NotificationService) -> list[str]:
    """The queues that the only node is said to serve."""
    [row] = database_of(service).fetch(nodes.Nodes().all_nodes)
    [member] = json.loads(row.serves)
    return list(member["queues"])


def test_a_node_serves_its_queues_from_its_first_moment(service: NotificationService) -> None:
    recorder, announced = Recorder(), list[list[str]]()
    service.create_queue("billing", "dunning", recorder, event_types=[Order])
    join = lifecycle_of(service).membership.join

    def join_and_look() -> None:
        join()
        announced.append(served(service))

    vars(lifecycle_of(service).membership)["join"] = join_and_look
    service.start()

    assert announced == [["billing:dunning"]]


def test_a_beat_tells_of_queues_that_were_started_and_stopped(make_service: MakeService) -> None:
    service = make_service(lease_seconds=1.0, beat_interval_seconds=0.05)
    service.create_queue("billing", "dunning", Recorder(), event_types=[Order])
    service.start()

    service.create_queue("billing", "archive", Recorder(), event_types=[Order]).start()
    eventually(
        lambda: served(service) == ["billing:archive", "billing:dunning"],
        "the new queue is told of",
    )
    service.delete_queue("billing", "dunning")
    eventually(lambda: served(service) == ["billing:archive"], "the deleted one is not")


def test_a_queue_that_is_created_while_the_service_runs_is_started(
    service: NotificationService,
) -> None:
    recorder = Recorder()
    service.start()
    queue = service.create_queue("billing", "late", recorder, event_types=[Order])
    queue.schedule(Order(1), delay=0)
    assert recorder.wait() == [Order(1)]
    service.stop()
    assert not queue.started
    assert not service.create_queue("billing", "later", recorder, event_types=[Order]).started


def test_a_start_that_fails_leaves_queues_as_they_were(service: NotificationService) -> None:
    first = service.create_queue("billing", "first", Recorder(), event_types=[Order])
    service.start()
    second = service.create_queue("billing", "second", Recorder(), event_types=[Order])
    second.stop()

    with pytest.raises(LifecycleError):
        service.start()

    assert (first.started, second.started) == (True, False)


def test_a_service_delivers_again_after_a_stop_and_a_start(service: NotificationService) -> None:
    recorder = Recorder()
    queue = service.create_queue("billing", "dunning", recorder, event_types=[Order])
    service.start()
    queue.schedule(Order(1), delay=0)
    recorder.wait()
    assert service.stop()
    queue.schedule(Order(2), delay=0)
    assert recorder.calls == 1

    service.start()
    queue.schedule(Order(3), delay=0)

    recorder.wait(3)
    assert recorder.numbers() == [1, 2, 3]


def test_plain_dicts_are_stored_under_the_queues_name_and_typed_events_decoded(
    service: NotificationService,
) -> None:
    recorder, typed = Recorder(), Recorder()
    anything = service.create_queue("billing", "anything", recorder)

    def handle(event: Order, context: object) -> None:
        typed(event, context)  # type: ignore[arg-type]  # as it was given

    annotated = service.create_queue("billing", "annotated", handle)
    service.start()

    anything.schedule({"a": 1}, delay=0)
    annotated.schedule(Order(7), delay=0)

    assert recorder.wait() == [{"a": 1}]
    assert typed.wait() == [Order(7)]
    assert [entry.class_name for entry in ended(anything)] == ["anything"]


@pytest.mark.parametrize("mode", [Mode.STICKY_POLLING, Mode.POLLING])
def test_what_waits_for_a_serial_handler_keeps_no_other_queue_from_its_threads(
    make_service: MakeService, mode: Mode
) -> None:
    service = make_service(mode=mode, handler_threads=10, max_entries_claimed=10)
    slow, other = Recorder(hold=True), Recorder()
    behind = service.create_queue("billing", "slow", slow, event_types=[Order], serial=True)
    beside = service.create_queue("billing", "other", other, event_types=[Order])
    due = datetime.now(UTC)
    behind.schedule_many([Posting(event=Order(number), at=due) for number in range(250)])
    service.start()
    slow.wait()
    beside.schedule(Order(1_000), delay=0)

    eventually(
        lambda: other.calls == 1, "the other queue's notification runs beside the serial handler"
    )
    assert slow.calls == 1

    slow.release()
    eventually(lambda: slow.calls == 250, "the serial handler has run them all")
    assert sorted(slow.numbers()) == list(range(250))

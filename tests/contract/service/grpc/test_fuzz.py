"""Whatever a caller sends is done, or refused with a status that says why, and then not done."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

import grpc
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.service.grpc.harness import Stubs
from work_queue.task import Task
from work_queue.work_queue import WorkQueue

METHODS = ("TryClaim", "Claim", "Modify", "Tasks", "StreamTasks", "Queues", "QueueStats", "Time")
DOC_METHODS = ("Docs", "ClaimDocs", "NamespaceStats")
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.UNIMPLEMENTED,
    # Claims wait for ever, unless their callers don't.
    grpc.StatusCode.DEADLINE_EXCEEDED,
}
SECONDS = {"Claim": 0.1}
UUIDS = [f"{number}0000000-0000-4000-8000-000000000000" for number in range(3)]
NEEDED = {"claimant_id", "queue", "queues", "id", "version", "old_id", "new_data", "inserts"}
"""Fields without which little can be done."""
ODD = ["", "\0", "é\N{GRINNING FACE}", "%", "x" * 600]
TEXTS = st.sampled_from(["a", *UUIDS] * 5 + ODD)
INTEGERS = st.sampled_from([0, 1, 2] * 8 + [-1, 2**31 - 1, -(2**31)])
LONGS = INTEGERS | st.sampled_from([2**63 - 1, -(2**63), 1_800_000_000_000, 2**52])
SINGLE: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_INT32: INTEGERS,
    FieldDescriptor.TYPE_INT64: LONGS,
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=20),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
EACH = settings(
    max_examples=150,
    deadline=None,
    # A random example would fail in someone else's change.
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def fields_of(descriptor: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Fields of a message, any of which may be missing."""
    values = {field.name: _values_of(field) for field in descriptor.fields}
    whole = st.fixed_dictionaries({name: values[name] for name in NEEDED & values.keys()})
    return whole | st.fixed_dictionaries({}, optional=values)


def _values_of(field: Any) -> st.SearchStrategy[Any]:
    kind = field.message_type
    if kind is None:
        one = SINGLE[field.type]
    elif kind.full_name == "google.protobuf.Value":
        one = JSON.map(_value)
    else:
        one = st.deferred(lambda: fields_of(kind))
    return st.lists(one, max_size=2) if field.is_repeated else one


def _value(value: Any) -> dict[str, Any]:
    match value:
        case None:
            return {"null_value": 0}
        case bool():
            return {"bool_value": value}
        case float():
            return {"number_value": value}
        case str():
            return {"string_value": value}
        case list():
            return {"list_value": {"values": [_value(one) for one in value]}}
        case _:
            return {"struct_value": value}


def requests_of(stubs: Stubs, package: str, method: str) -> Any:
    """The class of a method's requests."""
    module = getattr(stubs, package)
    service = module.DESCRIPTOR.services_by_name["EntroQ"]
    return getattr(module, service.methods_by_name[method].input_type.name)


NEVER = datetime.max.replace(tzinfo=UTC)
Written: TypeAlias = tuple[list[Task], list[Any]]


def written(work: WorkQueue) -> Written:
    """All that is stored."""
    tasks = [task for queue in work.queues() for task in work.tasks(queue)]
    docs = [work.docs(namespace.namespace) for namespace in work.namespace_stats()]
    return tasks, docs


def _without_dates(found: Written) -> Written:
    """The same, without dates and versions of tasks, in the order of their ids."""
    tasks, docs = found
    same = [replace(task, version=0, at=NEVER, modified=NEVER) for task in tasks]
    return sorted(same, key=lambda task: task.id), docs


def send(
    channel: grpc.Channel, work: WorkQueue, path: str, data: bytes, protocol: str = "1"
) -> None:
    """Send a request. One that is refused writes nothing."""
    before = written(work)
    call: Any = channel.unary_stream(path)
    metadata = [("entroq-protocol", protocol)]
    try:
        list(call(data, timeout=SECONDS.get(path.rpartition("/")[2], 20), metadata=metadata))
    except grpc.RpcError as error:
        told: Any = error
        assert told.code() in REFUSALS, (path, data, told)
        after = written(work)
        if told.code() is grpc.StatusCode.UNIMPLEMENTED and path.startswith("/proto."):
            # A task that callers of 0.8 can't name was claimed and given back: it queues up again.
            before, after = _without_dates(before), _without_dates(after)
        assert after == before, (path, data, told)


@EACH
@given(st.data())
def test_messages_of_any_content(
    channel: grpc.Channel, stubs: Stubs, work: WorkQueue, data: st.DataObject
) -> None:
    package = data.draw(st.sampled_from(["api", "api", "proto"]))
    methods = METHODS + (DOC_METHODS if package == "api" else ())
    method = data.draw(st.sampled_from(("Modify",) * 10 + methods))
    kind = requests_of(stubs, package, method)
    fields = data.draw(fields_of(kind.DESCRIPTOR))
    protocol = data.draw(st.sampled_from(["1", "1", "2", "", "x"]))
    sent = kind(**fields).SerializeToString()
    send(channel, work, f"/{package}.EntroQ/{method}", sent, protocol)


@EACH
@given(st.data())
def test_messages_that_are_cut_or_damaged(
    channel: grpc.Channel, stubs: Stubs, work: WorkQueue, data: st.DataObject
) -> None:
    package = data.draw(st.sampled_from(["api", "proto"]))
    method = data.draw(st.sampled_from(METHODS))
    kind = requests_of(stubs, package, method)
    whole = kind(**data.draw(fields_of(kind.DESCRIPTOR))).SerializeToString()
    start = whole[: data.draw(st.integers(0, len(whole)))]
    sent = (
        start + data.draw(st.binary(max_size=20)) + whole[data.draw(st.integers(0, len(whole))) :]
    )
    send(channel, work, f"/{package}.EntroQ/{method}", sent)


@EACH
@given(st.sampled_from(METHODS), st.sampled_from(["api", "proto"]), st.binary(max_size=200))
def test_bytes_that_are_no_message(
    channel: grpc.Channel, work: WorkQueue, method: str, package: str, data: bytes
) -> None:
    send(channel, work, f"/{package}.EntroQ/{method}", data)

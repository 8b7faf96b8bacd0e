"""The server: health, reflection, limits, certificates, tokens, and the database behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
from cryptography.x509 import NameAttribute
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from sqlalchemy import URL, create_engine
from sqlalchemy.exc import OperationalError

from devtools.proxy import Moment, Proxy
from queue_core.errors import ConfigurationError, DatabaseUnreachableError
from tests import requirements as needs
from tests.contract.service.certificates import NO_NAME, Certificates, common_name
from tests.contract.service.grpc.conftest import Serve
from tests.contract.service.grpc.harness import PATIENCE_SECONDS, Served, Stubs, details, refused
from work_queue.modified import Modified
from work_queue.rights import Need, UnauthenticatedError, denial
from work_queue.service.caller import Caller
from work_queue.service.rpc import listener
from work_queue.service.tls import Tls
from work_queue.work_queue import WorkQueue

HOST = "127.0.0.1"


def test_it_says_that_it_serves(channel: grpc.Channel) -> None:
    health: Any = health_pb2_grpc.HealthStub(channel)
    for service in ("", "api.EntroQ", "proto.EntroQ"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    unknown = health_pb2.HealthCheckRequest(service="api.Unknown")
    refused(grpc.StatusCode.NOT_FOUND, health.Check, unknown)


def test_a_caller_that_watches_its_health_is_told_of_a_stop_and_holds_it_up_no_longer(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "STOP_SECONDS", 3600)
    served = serve()
    with served.channel() as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        answers = health.Watch(health_pb2.HealthCheckRequest())
        assert next(answers).status == health_pb2.HealthCheckResponse.SERVING
        unknown = health.Watch(health_pb2.HealthCheckRequest(service="api.Unknown"))
        assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        served.stop()
        assert next(answers).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert list(answers) == []


@pytest.mark.slow
def test_a_stop_finishes_a_modification_that_waits_for_locks(
    served: Served,
    stubs: Stubs,
    work: WorkQueue,
    database_url: URL,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modify, begun = work.modify, Event()

    def seen(*actions: Any, **options: Any) -> Modified:
        begun.set()
        return modify(*actions, **options)

    task, application = work.insert("a"), create_engine(database_url)
    deletion = {"id": task.id, "version": 0, "queue": "a"}
    request = stubs.api.ModifyRequest(claimant_id="here", deletes=[deletion])
    with ThreadPoolExecutor(1) as pool, served.channel() as channel:
        with application.connect() as holder:
            work.modify(task.change(value="theirs"), connection=holder)
            monkeypatch.setattr(work, "modify", seen)
            call = stubs.api_stub(channel).Modify.future(request)
            assert begun.wait(PATIENCE_SECONDS)
            stopping = pool.submit(served.stop)
            with pytest.raises(grpc.FutureTimeoutError):
                call.result(timeout=6)
            holder.rollback()
        call.result(timeout=PATIENCE_SECONDS)
        stopping.result(PATIENCE_SECONDS)
    application.dispose()
    assert work.queues() == {}


def test_whoever_has_no_descriptors_gets_them_by_reflection(
    channel: grpc.Channel, entroq: Any, stubs: Stubs
) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)
    assert {"api.EntroQ", "proto.EntroQ", "grpc.health.v1.Health"} <= set(database.get_services())
    pool = DescriptorPool(database)
    for package, module in (("api", stubs.api), ("proto", stubs.proto)):
        service = pool.FindServiceByName(f"{package}.EntroQ")
        compiled = module.DESCRIPTOR.services_by_name["EntroQ"]
        assert [told(method) for method in service.methods] == [
            told(method) for method in compiled.methods
        ]
        for name, message in module.DESCRIPTOR.message_types_by_name.items():
            found = pool.FindMessageTypeByName(f"{package}.{name}")
            assert [fact(field) for field in found.fields] == [
                fact(field) for field in message.fields
            ]
    time: Any = GetMessageClass(pool.FindMessageTypeByName("api.TimeResponse"))
    assert time.FromString(entroq.Time(stubs.api.TimeRequest()).SerializeToString()).time_ms > 0


def told(method: Any) -> tuple[object, ...]:
    """What makes a method."""
    return (
        method.name,
        method.input_type.full_name,
        method.output_type.full_name,
        method.client_streaming,
        method.server_streaming,
    )


def fact(field: Any) -> tuple[object, ...]:
    """What makes a field."""
    kind = field.message_type or field.enum_type
    return (field.number, field.name, field.type, field.is_repeated, kind and kind.full_name)


def test_a_message_that_is_too_long_is_refused(serve: Serve, stubs: Stubs, work: WorkQueue) -> None:
    served = serve(max_message_bytes=10_000)
    task = {"queue": "a", "value": {"string_value": "x" * 10_000}}
    request = stubs.api.ModifyRequest(claimant_id="ann", inserts=[task])
    with served.channel() as channel:
        call = stubs.api_stub(channel).Modify
        refused(grpc.StatusCode.RESOURCE_EXHAUSTED, call, request)
        task["value"] = {"string_value": "x" * 9_000}
        call(stubs.api.ModifyRequest(claimant_id="ann", inserts=[task]))
    assert work.queues() == {"a": 1}


def test_a_value_that_is_too_long_is_refused(serve: Serve, stubs: Stubs, make_work: Any) -> None:
    work = make_work(max_value_bytes=100)
    task = {"queue": "a", "value": {"string_value": "x" * 100}}
    request = stubs.api.ModifyRequest(claimant_id="ann", inserts=[task])
    with serve(work).channel() as channel:
        error = refused(grpc.StatusCode.INVALID_ARGUMENT, stubs.api_stub(channel).Modify, request)
    assert "102 bytes, the cap is 100" in error.details()
    assert work.queues() == {}


def test_a_port_that_is_taken_is_an_error(served: Served, serve: Serve) -> None:
    with pytest.raises(ConfigurationError, match=str(served.port)):
        serve(port=served.port)


def test_a_request_with_unknown_fields_is_not_half_done(
    channel: grpc.Channel, entroq: Any, stubs: Stubs, work: WorkQueue
) -> None:
    task = work.insert("a", "kept")
    change = stubs.api.TaskChange(old_id={"id": task.id}, new_data={"queue": "a"})
    # A mode, say, by which only the arrival is to change.
    newer = change.SerializeToString() + b"\x18\x02"
    request = b"\x0a\x03ann\x1a" + bytes([len(newer)]) + newer
    call: Any = channel.unary_unary("/api.EntroQ/Modify")
    refused(grpc.StatusCode.UNIMPLEMENTED, call, request)
    assert work.tasks("a") == [task]
    entroq.Modify(stubs.api.ModifyRequest(claimant_id="ann", changes=[change]))
    assert work.tasks("a")[0].version == 1


class _Knows:
    """An authoriser of one token, or certificate, whose bearer may only read."""

    def __init__(self, *, token: str | None = None, subject: str | None = None) -> None:
        self._caller = Caller(token, subject)

    async def allow(self, caller: Caller, needs: Sequence[Need]) -> None:
        """See `Authoriser`."""
        if caller != self._caller:
            raise UnauthenticatedError("nobody knows this caller")
        if missing := [need for need in needs if need.right.value != "READ"]:
            raise denial("ann", missing)

    async def close(self) -> None:
        """See `Authoriser`."""


def test_callers_are_known_by_their_tokens(serve: Serve, stubs: Stubs, work: WorkQueue) -> None:
    with serve(authoriser=_Knows(token="secret")).channel() as channel:
        entroq, legacy = stubs.api_stub(channel), stubs.proto_stub(channel)
        token = [("authorization", "Bearer secret")]
        read = stubs.api.TasksRequest(queue="a")
        assert not entroq.Tasks(read, metadata=token).tasks
        for other in ([], [("authorization", "Bearer other")], [("authorization", "secret")]):
            refused(grpc.StatusCode.UNAUTHENTICATED, entroq.Tasks, read, metadata=other)
        insert = stubs.api.ModifyRequest(claimant_id="ann", inserts=[{"queue": "a"}])
        error = refused(grpc.StatusCode.PERMISSION_DENIED, entroq.Modify, insert, metadata=token)
        items = details(error, stubs, stubs.api.AuthzDep)
        found = {(tuple(item.actions), item.exact, item.prefix) for item in items}
        kinds = stubs.api.ActionType
        assert ((kinds.Value("INSERT"),), "a", "") in found
        claim = stubs.proto.ClaimRequest(claimant_id="00000000-0000-4000-8000-000000000000")
        claim.queues.append("a")
        error = refused(grpc.StatusCode.PERMISSION_DENIED, legacy.Claim, claim, metadata=token)
        assert details(error, stubs, stubs.proto.AuthzDep)
    assert work.queues() == {}


@pytest.mark.parametrize("letter", ["a", "€", "𝄞"])
def test_what_a_caller_lacks_is_told_as_far_as_it_is_read(
    serve: Serve, stubs: Stubs, letter: str
) -> None:
    """Callers take 8 kB, now and then a little more; letters beyond ASCII take up to 12 bytes."""
    token = [("authorization", "Bearer secret")]
    inserts = [{"queue": f"{letter * 500}{number}"} for number in range(10)]
    request = stubs.api.ModifyRequest(claimant_id="ann", inserts=inserts)
    with serve(authoriser=_Knows(token="secret")).channel() as channel:
        entroq = stubs.api_stub(channel)
        for _ in range(10):
            error = refused(
                grpc.StatusCode.PERMISSION_DENIED, entroq.Modify, request, metadata=token
            )
            assert details(error, stubs, stubs.api.AuthzDep)
            assert letter * 40 in error.details()


def test_callers_are_known_by_their_certificates(
    serve: Serve, stubs: Stubs, tmp_path: Path
) -> None:
    authority = Certificates(tmp_path)
    certificate, key = authority.of("service")
    tls = Tls(certificate, key, client_ca=authority.authority)
    served = serve(authoriser=_Knows(subject="mailer"), tls=tls)
    assert served.address.startswith("grpcs://")

    def ask(name: str | None, *more: NameAttribute[str], token: str | None = None) -> Any:
        pair = [path.read_bytes() for path in authority.of(name, *more)] if name else [None, None]
        credentials = grpc.ssl_channel_credentials(
            authority.authority.read_bytes(), pair[1], pair[0]
        )
        with grpc.secure_channel(f"{HOST}:{served.port}", credentials) as channel:
            return stubs.api_stub(channel).Time(
                stubs.api.TimeRequest(),
                timeout=PATIENCE_SECONDS,
                metadata=() if token is None else (("authorization", f"Bearer {token}"),),
            )

    assert ask("mailer").time_ms > 0
    assert ask("mailer", token="").time_ms > 0
    assert ask("mailer", NO_NAME).time_ms > 0
    for first, second in (("mailer", "somebody else"), ("somebody else", "mailer")):
        refused(grpc.StatusCode.UNAUTHENTICATED, ask, first, common_name(second))
    refused(grpc.StatusCode.UNAUTHENTICATED, ask, "somebody else")
    refused(grpc.StatusCode.UNAVAILABLE, ask, None)


def test_a_certificate_that_is_none_is_an_error(serve: Serve, tmp_path: Path) -> None:
    certificate, key = Certificates(tmp_path).of("service")
    certificate.write_text("nothing")
    with pytest.raises(ConfigurationError, match="certificate"):
        serve(tls=Tls(certificate, key))


def test_it_listens_at_an_ipv6_address(serve: Serve, stubs: Stubs) -> None:
    served = serve(host="::1")
    assert served.address == f"grpc://[::1]:{served.port}"
    with grpc.insecure_channel(f"[::1]:{served.port}") as channel:
        assert stubs.api_stub(channel).Time(stubs.api.TimeRequest()).time_ms > 0


def test_tls_without_certificates_of_callers(serve: Serve, stubs: Stubs, tmp_path: Path) -> None:
    authority = Certificates(tmp_path)
    served = serve(tls=Tls(*authority.of("service")))
    credentials = grpc.ssl_channel_credentials(authority.authority.read_bytes())
    with grpc.secure_channel(f"{HOST}:{served.port}", credentials) as channel:
        assert stubs.api_stub(channel).Time(stubs.api.TimeRequest()).time_ms > 0


def test_two_servers_on_one_database_share_its_tasks(
    serve: Serve, stubs: Stubs, make_work: Callable[..., WorkQueue]
) -> None:
    first, second = serve(make_work()), serve(make_work())
    api = stubs.api
    with first.channel() as here, second.channel() as there:
        entroqs = [stubs.api_stub(here), stubs.api_stub(there)]
        claim = api.ClaimRequest(claimant_id="ann", queues=["a"])
        waiting = [entroq.Claim.future(claim, timeout=PATIENCE_SECONDS) for entroq in entroqs * 5]
        for number in range(10):
            insert = api.ModifyRequest(claimant_id="bob", inserts=[{"queue": "a"}])
            entroqs[number % 2].Modify(insert)
        tasks = [call.result().task for call in waiting]
        assert len({task.id for task in tasks}) == 10
        assert {task.claims for task in tasks} == {1}
        for number, task in enumerate(tasks):
            delete = api.ModifyRequest(
                claimant_id="ann", deletes=[{"id": task.id, "version": task.version}]
            )
            entroqs[number % 2].Modify(delete)
            other = entroqs[1 - number % 2].Modify
            refused(grpc.StatusCode.NOT_FOUND, other, delete)
        assert not entroqs[0].Queues(api.QueuesRequest()).queues


@pytest.mark.parametrize(
    "error",
    [
        DatabaseUnreachableError("secret", url="secret"),
        OperationalError("SELECT secret", {}, Exception("secret")),
    ],
)
def test_where_the_database_is_concerns_no_caller(
    entroq: Any,
    stubs: Stubs,
    work: WorkQueue,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr(work, "time", fails)
    told = refused(grpc.StatusCode.UNAVAILABLE, entroq.Time, stubs.api.TimeRequest())
    assert told.details() == "the database does not answer. Try again later."


def answers_before_a_cut(proxy: Proxy, modify: Callable[[], Any]) -> int:
    """Cut a call's COMMIT, and return how many calls were answered before one was cut.

    A connection that is opened commits as well: the cut may hit that one, which harms nobody.
    """
    for answered in range(10):
        proxy.cut_at_commit(Moment.AFTER)
        try:
            modify()
        except grpc.RpcError as error:
            told: Any = error
            assert told.code() is grpc.StatusCode.UNKNOWN
            assert "COMMIT" in told.details()
            return answered
    raise AssertionError("no call was cut")


@needs.server
def test_a_database_that_does_not_answer_is_told(
    database_url: URL, make_work: Any, serve: Serve, stubs: Stubs
) -> None:
    with ExitStack() as network:
        proxy = network.enter_context(Proxy.before(database_url))
        served = serve(make_work(database=proxy.through(database_url)))
        with served.channel() as channel:
            entroq, api = stubs.api_stub(channel), stubs.api
            insert = api.ModifyRequest(claimant_id="ann", inserts=[{"queue": "a"}])
            entroq.Modify(insert)
            answered = answers_before_a_cut(proxy, lambda: entroq.Modify(insert))
            assert len(entroq.Tasks(api.TasksRequest(queue="a")).tasks) == 1 + answered + 1
            network.close()
            claim = api.ClaimRequest(claimant_id="ann", queues=["a"])
            refused(grpc.StatusCode.UNAVAILABLE, entroq.Time, api.TimeRequest())
            refused(grpc.StatusCode.UNAVAILABLE, entroq.TryClaim, claim)
            refused(grpc.StatusCode.UNAVAILABLE, entroq.Modify, insert)

"""Whatever is sent over HTTP: no failure of the service, and nothing written when it is refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.service.http.running import NEW, OLD, Running

FINE = {200, 400, 404, 409, 501}
EXAMPLES = 60

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["", "a", "x", "n", "k", "0", "-1", "1000", "CHANGE_LEASE", "\0", "x" * 2000])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
names = st.sampled_from(["a", "b", "", "x"])
"""Queues, ids and claimants that often meet."""
small = st.integers(-2, 3) | st.sampled_from(["0", "1", "-1"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with some of these fields, of which now and then one is anything."""
    wild = {name: strategy | values for name, strategy in fields.items()}
    return st.fixed_dictionaries({}, optional=fields) | st.fixed_dictionaries({}, optional=wild)


modes = st.sampled_from(["", "CHANGE_DEFAULT", "CHANGE_RESET_CLAIMS", "CHANGE_LEASE", "OTHER"])
task_ids = some(id=names, version=small, queue=names)
task_data = some(
    queue=names, byMs=small, atMs=small, value=values, id=names, attempt=small, err=names
)
doc_ids = some(namespace=names, id=names, key=names, secondaryKey=names, version=small)
doc_data = some(
    namespace=names, id=names, key=names, secondaryKey=names, content=values, byMs=small
)
modifications = some(
    claimantId=names,
    inserts=st.lists(task_data, max_size=3),
    changes=st.lists(some(oldId=task_ids, newData=task_data, mode=modes), max_size=2),
    deletes=st.lists(task_ids, max_size=2),
    depends=st.lists(task_ids, max_size=2),
    docInserts=st.lists(doc_data, max_size=3),
    docChanges=st.lists(some(oldId=doc_ids, newData=doc_data, mode=modes), max_size=2),
    docDeletes=st.lists(doc_ids, max_size=2),
    docDepends=st.lists(doc_ids, max_size=2),
)
claims = some(claimantId=names, queues=st.lists(names, max_size=3), durationMs=small, pollMs=small)
doc_claims = some(
    claimQuery=some(
        claimant=names,
        namespace=names,
        key=names,
        durationMs=small,
        sets=st.lists(some(set=doc_ids, omitMembers=st.booleans()), max_size=3),
        taskToMatch=task_ids,
    )
)
bodies = st.one_of(
    st.tuples(st.just("/modify"), modifications | values),
    st.tuples(st.just("/claim"), claims | values),
    st.tuples(st.just("/docs/claim"), doc_claims | values),
)
parameters = st.sampled_from(
    [
        *("queue", "taskId", "claimantId", "limit", "omitValues", "matchPrefix", "matchExact"),
        *("query.namespace", "query.ids", "query.keyStart", "query.keyEnd", "query.limit"),
        *("query.keyExact", "query.omitValues", "other"),
    ]
)
paths = st.sampled_from(["/tasks", "/docs", "/queues", "/queues/stats", "/namespaces/stats"])
headers = st.sampled_from([OLD, NEW])


def all_there_is(service: Running) -> Any:
    work = service.work
    tasks = [task for name in ("a", "b", "x") for task in work.tasks(name)]
    docs = [doc for name in ("a", "b", "x") for doc in work.docs(name)]
    return tasks, docs, work.queues()


def check(service: Running, response: httpx.Response, before: Any) -> None:
    assert response.status_code in FINE, (response.status_code, response.text)
    found = response.json()
    if response.status_code != 200:
        assert set(found) == {"code", "message", "details"}
        assert all_there_is(service) == before


fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@fuzzed
@given(call=bodies, headers=headers)
def test_any_body_is_answered(
    service: Running, call: tuple[str, Any], headers: dict[str, str]
) -> None:
    before = all_there_is(service)
    path, body = call
    check(service, service.call(path, {} if body is None else body, headers=headers), before)


@fuzzed
@given(path=paths, query=st.dictionaries(parameters, st.text(max_size=6) | names, max_size=3))
def test_any_query_is_answered(service: Running, path: str, query: dict[str, Any]) -> None:
    before = all_there_is(service)
    check(service, service.call(path, **query), before)


@fuzzed
@given(body=st.binary(max_size=200), headers=headers)
@pytest.mark.parametrize("path", ["/modify", "/claim", "/claim/wait", "/docs/claim"])
def test_any_bytes_are_answered(
    service: Running, path: str, body: bytes, headers: dict[str, str]
) -> None:
    before = all_there_is(service)
    check(service, service.call(path, body, headers=headers), before)

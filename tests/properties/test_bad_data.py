"""Payloads, names, settings and command lines of any content.

The result is a value or the one error that is documented for it.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from queue_core.errors import ConfigurationError, PayloadNotDecodableError
from queue_core.model.config import BusConfig, NotificationConfig, QueueConfig
from queue_core.model.entry import Entry
from queue_core.model.event_types import EventTypes
from queue_core.model.known_codecs import Codecs
from queue_core.model.names import name_fault
from queue_core.model.states import State
from stickybus.cli import main


@dataclass(frozen=True)
class Booked:
    number: int
    amount: Decimal = Decimal(0)
    when: datetime | None = None
    token: UUID | None = None
    tags: frozenset[str] = frozenset()
    raw: bytes = b""


@attrs.frozen
class Seen:
    number: int
    note: str = ""


class Moved(msgspec.Struct, frozen=True):
    number: int
    inner: dict[str, list[float]] = {}


class Asked(pydantic.BaseModel):
    number: int
    address: pydantic.AnyUrl | None = None
    when: datetime | None = None


KINDS: list[type] = [Booked, Seen, Moved, Asked]
TYPES = EventTypes()
for _kind in KINDS:
    TYPES.register(_kind)
TYPES.register_name("plain")
CODECS = Codecs(TYPES)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
fields = st.fixed_dictionaries(
    {"number": anything},
    optional=dict.fromkeys(
        ("amount", "when", "token", "tags", "raw", "note", "inner", "address"), anything
    ),
)
texts = st.one_of(
    st.text(),
    anything.map(json.dumps),
    fields.map(json.dumps),
    st.sampled_from(
        ["[" * 100_000, '{"a":' * 100_000, "1e999", '{"number":1e400}', '"\\ud800"', "﻿{}"]
    ),
)
names = [*(kind.__name__ for kind in KINDS), "plain"]


@settings(max_examples=150)
@given(
    st.sampled_from(names),
    texts | st.none(),
    st.binary() | st.none(),
    st.sampled_from(["json", "pickle", ""]),
)
@example("Asked", '{"number":1,"when":1e308}', None, "json")
@example("Booked", '{"number":1,"amount":"1e999999999"}', None, "json")
@example("Booked", '{"number":1,"when":"9999-12-31T23:59:59.999999-14:00"}', None, "json")
@example("Booked", '{"number":' + "9" * 5000 + "}", None, "json")
@example("Asked", '{"number":"' + "9" * 5000 + '"}', None, "json")
def test_any_payload_is_a_value_of_its_type_or_not_decodable(
    name: str, event_json: str | None, event_bytes: bytes | None, codec: str
) -> None:
    stored = SimpleNamespace(
        record_id=1,
        queue_name="bus",
        class_name=name,
        event_json=event_json,
        event_bytes=event_bytes,
        codec=codec,
    )
    with suppress(PayloadNotDecodableError):
        assert type(CODECS.decode(stored)) in KINDS or name == "plain"


@given(st.text(max_size=200), texts)
def test_any_column_of_progress_or_headers_is_read_or_not_decodable(name: str, column: str) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    known: dict[str, Any] = dict.fromkeys(Entry.__struct_fields__)
    known |= dict.fromkeys(("error_count", "claim_count", "redispatch_count", "crash_count"), 0)
    known |= {
        "record_id": 1,
        "queue_name": name,
        "class_name": name,
        "processing_state": State.AVAILABLE,
    }
    known |= {"created_date": moment, "effective_date": moment}
    entry = Entry(**{**known, "subscribers_done": column, "headers": column})
    for read in (lambda: entry.progress, lambda: entry.captured):
        with suppress(PayloadNotDecodableError):
            assert isinstance(read(), dict)


odd_names = st.one_of(
    st.text(max_size=140),
    st.text(st.characters(categories=("Cs", "Cc", "So")), max_size=3),
    st.sampled_from(["", "!parked", "\0", "'; DROP TABLE x; --", "%s", "os.system"]),
)


@given(odd_names)
def test_any_name_is_one_that_every_database_stores_or_is_refused_with_its_key(name: str) -> None:
    for key, build in (
        ("name", BusConfig),
        ("node_name", BusConfig),
        ("table", NotificationConfig),
    ):
        config, refusal = result_of(partial(build, **{key: name}))
        if refusal is not None:
            assert refusal.key == key
            assert key in str(refusal)
        else:
            assert getattr(config, key) == name
            assert name_fault(name) is None
            assert key != "table" or name.isascii()


settings_of_any_kind = st.dictionaries(
    st.sampled_from([*BusConfig.model_fields, "no_such_key", ""]),
    anything
    | st.sampled_from(
        [float("nan"), float("inf"), -1, 0, 1e300, "1", "STICKY_EVENTS", {"kind": "immediate"}]
    ),
    max_size=4,
)


def result_of(
    build: Callable[[], QueueConfig],
) -> tuple[QueueConfig | None, ConfigurationError | None]:
    """What is built, or why it is not; any other error is raised."""
    try:
        return build(), None
    except ConfigurationError as error:
        return None, error


def is_config_or_names_its_key(build: Callable[[], QueueConfig], given_keys: set[str]) -> None:
    """Whether `build` is right in all that was given, or says in what it is not."""
    config, refusal = result_of(build)
    if config is not None:
        assert 3 * config.node.beat_interval_seconds <= config.node.lease_seconds
        return
    assert refusal is not None
    assert refusal.key is not None
    named = refusal.key.partition(".")[0]
    assert named in given_keys | set(BusConfig.model_fields)
    assert named in str(refusal).lower()  # the environment's variable has it in capitals


@settings(max_examples=100)
@given(settings_of_any_kind)
def test_any_settings_in_code_are_a_configuration_or_an_error_that_names_the_key(
    values: dict[str, Any],
) -> None:
    is_config_or_names_its_key(lambda: BusConfig(**values), set(values))


environment_texts = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from([*BusConfig.model_fields, "no_such_key"]), environment_texts, max_size=3
    )
)
def test_any_environment_is_a_configuration_or_an_error_that_names_the_key(
    values: dict[str, str],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for key, value in values.items():
            patch.setenv(f"STICKYBUS_BUS_{key.upper()}", value)
        is_config_or_names_its_key(BusConfig.from_environment, set(values))


def as_toml(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, float) else repr(value)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=60)
    | st.dictionaries(
        st.sampled_from([*BusConfig.model_fields, "no_such_key"]),
        st.booleans()
        | st.integers()
        | st.floats()
        | st.text(st.characters(codec="ascii"), max_size=12),
        max_size=3,
    ).map(
        lambda values: (
            "[bus]\n" + "\n".join(f"{k} = {as_toml(v)}" for k, v in values.items())
        ).encode()
    )
)
def test_any_file_is_a_configuration_or_a_configuration_error(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "stickybus.toml"
    path.write_bytes(content)
    with suppress(ConfigurationError):
        BusConfig.from_toml(path, prefix="")


COMMANDS = [
    "post",
    "status",
    "find",
    "history",
    "nodes",
    "schema",
    "worker",
    "show",
    "retry",
    "remove",
    "nonsense",
]
OPTIONS = [
    "--json",
    "--help",
    "--url",
    "--limit",
    "--queue",
    "--state",
    "--at",
    "--table",
    "--since",
    "--",
    "-",
]
words = st.sampled_from(COMMANDS + OPTIONS) | st.text(max_size=12) | st.integers().map(str)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(words, max_size=5), st.binary(max_size=200))
def test_any_command_line_ends_with_a_code_and_never_with_a_traceback(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    stdin: bytes,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STICKYBUS_URL", f"sqlite:///{tmp_path}/cli.db")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    if "worker" in arguments:  # it would run until a signal
        return
    code = main(arguments)
    out, err = capsys.readouterr()
    assert code in range(5)
    assert "Traceback" not in out + err
    assert code == 0 or err.strip() or out.strip()


lines = st.binary(max_size=60) | anything.map(json.dumps).map(str.encode)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(lines, max_size=6))
def test_any_lines_that_are_posted_are_taken_or_refused_in_words(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    lines: list[bytes],
) -> None:
    monkeypatch.setenv("STICKYBUS_URL", f"sqlite:///{tmp_path}/cli.db")
    if not (tmp_path / "cli.db").exists():
        assert main(["schema", "create"]) == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(lines))))
    code = main(["post", "-", "--event-name", "Order"])
    out, err = capsys.readouterr()
    assert code in range(5)
    assert "Traceback" not in out + err
    assert code == 0 or err.strip()

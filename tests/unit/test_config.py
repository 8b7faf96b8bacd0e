"""Settings: checked as a whole, merged in one order, documented key by key."""

import inspect
import os
import pickle
import re
import typing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import ConfigurationError
from queue_core.model.config import BusConfig, NotificationConfig, QueueConfig
from queue_core.model.config_keys import BusSettings, QueueSettings
from queue_core.model.mode import Mode
from queue_core.model.names import name_fault
from queue_core.model.node_config import NodeConfig, NodeSettings
from queue_core.model.retry_policies import ExponentialRetries, ImmediateRetries, ScheduledRetries
from queue_core.model.settings import Settings

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "configuration.md").read_text(
    encoding="utf-8"
)
CONFIGS: list[type[Settings]] = [BusConfig, NotificationConfig, NodeConfig]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have a bus configured."""
    for variable in [name for name in os.environ if name.startswith("STICKYBUS_")]:
        monkeypatch.delenv(variable)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "service.toml"
    path.write_text(
        '[bus]\nhandler_threads = 4\nqueue_capacity = 40\nmode = "polling"\n'
        '[bus.retry]\nkind = "scheduled"\ndelays_seconds = [60, 600]\n'
        "[shop.notifications]\npoll_interval_seconds = 0.5\n"
        "[node]\nlease_seconds = 30\nreap_period_seconds = 2\n"
    )
    return path


def test_the_defaults_are_those_of_the_reference_system() -> None:
    bus, notifications = BusConfig(), NotificationConfig()
    assert (bus.mode, bus.handler_threads, bus.queue_capacity) == (Mode.STICKY_EVENTS, 30, 30_000)
    assert (notifications.mode, notifications.handler_threads) == (Mode.STICKY_POLLING, 10)
    assert notifications.queue_capacity == 100
    assert (bus.max_entries_claimed, bus.poll_interval_seconds, bus.claim_seconds) == (
        100,
        3.0,
        300.0,
    )
    assert (bus.node.lease_seconds, bus.node.reap_period_seconds) == (15.0, 5.0)
    assert bus.node == notifications.node == NodeConfig()
    assert bus.shutdown_timeout_seconds == 15.0
    assert bus.retry == ImmediateRetries(3)


def test_the_history_table_is_named_after_the_main_table() -> None:
    assert BusConfig(table="orders").history_table == "orders_history"


def test_derived_defaults_follow_what_they_are_derived_from() -> None:
    config, node = BusConfig(max_failure_retries=7), NodeConfig(lease_seconds=100)
    assert config.retry == ImmediateRetries(7)
    assert config.with_changes(max_failure_retries=8).retry == ImmediateRetries(8)
    assert node.beat_interval_seconds == 20
    assert node.with_changes(lease_seconds=50).beat_interval_seconds == 10


@pytest.mark.parametrize("key", ["handler_threads", "poll_interval_seconds", "max_payload_bytes"])
def test_a_truth_value_is_no_number(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{key}=True .* not a truth value") as refused:
        BusConfig(**{key: True})
    assert refused.value.key == key
    assert BusConfig(auto_migrate=True).auto_migrate is True


@pytest.mark.parametrize("config", CONFIGS)
def test_a_configuration_is_shown_without_addresses(config: type[Settings]) -> None:
    shown = str(inspect.signature(config))
    assert not re.search(r"\bat 0x[0-9a-f]+", shown)


def test_a_copy_with_changes_is_checked() -> None:
    with pytest.raises(ConfigurationError, match="handler_threads=0"):
        BusConfig().with_changes(handler_threads=0)


def test_a_configuration_can_not_be_changed_but_compared_hashed_and_pickled() -> None:
    config = BusConfig(retry=ScheduledRetries((timedelta(seconds=1),)))
    with pytest.raises(ValueError, match="frozen"):
        config.handler_threads = 5  # type: ignore[misc]  # the attempt is the case
    copy = pickle.loads(pickle.dumps(config))  # noqa: S301 -- our own bytes
    assert copy == config
    assert hash(copy) == hash(config)


def test_none_means_not_set() -> None:
    nothing: dict[str, Any] = {"retry": None, "node": None, "handler_threads": None}
    assert BusConfig(**nothing) == BusConfig()
    assert BusConfig.from_environment(**nothing) == BusConfig()


@pytest.mark.parametrize(
    ("config", "values", "message"),
    [
        (
            BusConfig,
            {"handler_threads": 0},
            "handler_threads=0 is not allowed. Allowed: greater than or equal to 1",
        ),
        (
            BusConfig,
            {"handler_threads": 1.5},
            "handler_threads=1.5 is not allowed. Allowed: a valid integer",
        ),
        (
            BusConfig,
            {"handler_thread": 3},
            "handler_thread=3 is no key; did you mean handler_threads?",
        ),
        (
            BusConfig,
            {"mode": "push"},
            "mode='PUSH' is not allowed. Allowed: 'POLLING', 'STICKY_POLLING'",
        ),
        (NotificationConfig, {"mode": Mode.STICKY_EVENTS}, "Allowed: STICKY_POLLING or POLLING"),
        (
            NodeConfig,
            {"lease_seconds": 0},
            "lease_seconds=0 is not allowed. Allowed: greater than 0",
        ),
        (BusConfig, {"node": 3}, "node=3 is not allowed. Allowed: a NodeConfig"),
        (NodeConfig, {"lease_seconds": float("nan")}, "lease_seconds=nan is not allowed"),
        (
            BusConfig,
            {"poll_interval_seconds": float("inf")},
            "poll_interval_seconds=inf is not allowed",
        ),
        (
            NodeConfig,
            {"lease_seconds": 4, "beat_interval_seconds": 2.1},
            "at most a third of lease_seconds (4)",
        ),
        (
            BusConfig,
            {"retry": ImmediateRetries(1), "max_failure_retries": 1},
            "either it or retry, not both",
        ),
        (BusConfig, {"retry": 3}, "retry=3 is not allowed. Allowed: an instance of RetryPolicy"),
        (BusConfig, {"retry": {"kind": "never"}}, "retry: kind='never' is not allowed"),
        (BusConfig, {"table": "bus events"}, "1 to 48 letters, digits and underscores"),
        (BusConfig, {"table": "t" * 49}, "1 to 48 letters, digits and underscores"),
        (BusConfig, {"table": "bus_events_history"}, "no name that ends in _history"),
        (
            BusConfig,
            {"table": "Queue_Nodes"},
            "none of queue_archives, queue_circuits, queue_group_ends",
        ),
        (BusConfig, {"node_name": "!parked"}, "no leading '!'"),
        (BusConfig, {"node_name": ""}, "1 to 64 characters, not 0"),
        (BusConfig, {"name": "x" * 65}, "1 to 64 characters, not 65"),
        (BusConfig, {"name": "a\0b"}, "no NUL character"),
        (BusConfig, {"application_name": "büs"}, "1 to 63 printable ASCII characters"),
        (BusConfig, {"max_payload_bytes": 0}, "max_payload_bytes=0"),
        (BusConfig, {"unknown_retention_days": 0}, "unknown_retention_days=0"),
        (QueueConfig, {}, "table is missing"),
    ],
)
def test_a_wrong_value_names_the_key_the_value_and_what_is_allowed(
    config: type[Settings], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        config(**values)
    assert str(caught.value).startswith(f"{config.__name__}: ")
    assert caught.value.key is not None
    assert caught.value.source is None


@pytest.mark.parametrize("name", ["o'clock", '100%s "x"', "🚌" * 64, " trailing ", "Straße", "x"])
def test_unusual_names_are_names(name: str) -> None:
    assert BusConfig(name=name, node_name=name).name == name


@given(st.text(max_size=70))
def test_a_name_is_refused_for_its_length_and_for_what_can_not_be_stored_only(name: str) -> None:
    storable = "\0" not in name and name.encode("utf-8", "replace").decode() == name
    assert (name_fault(name) is None) == (storable and 1 <= len(name) <= 64)


def test_code_wins_over_the_environment_over_toml_over_defaults(
    toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STICKYBUS_BUS_QUEUE_CAPACITY", "50")
    monkeypatch.setenv("STICKYBUS_BUS_POLL_INTERVAL_SECONDS", "0.25")
    config = BusConfig.from_toml(toml, poll_interval_seconds=0.125)
    assert config.poll_interval_seconds == 0.125
    assert config.queue_capacity == 50
    assert config.handler_threads == 4
    assert config.max_entries_claimed == 100
    assert config.mode is Mode.POLLING
    assert config.retry == ScheduledRetries((60, 600))
    assert BusConfig.from_toml(toml, prefix="").queue_capacity == 40


def test_each_instance_may_have_a_prefix_and_a_table_of_its_own(
    toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_HANDLER_THREADS", "3")
    monkeypatch.setenv("SHOP_RETRY", '{"kind": "exponential", "factor": 3}')
    config = NotificationConfig.from_toml(toml, table="shop.notifications", prefix="SHOP_")
    assert (config.handler_threads, config.poll_interval_seconds) == (3, 0.5)
    assert config.retry == ExponentialRetries(factor=3)
    assert NotificationConfig.from_environment("SHOP_").handler_threads == 3


def test_all_of_a_process_read_the_settings_of_their_node_at_one_place(
    toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STICKYBUS_NODE_REAP_PERIOD_SECONDS", "1")
    node = NodeConfig(lease_seconds=30, reap_period_seconds=1)
    assert BusConfig.from_toml(toml).node == node
    assert NotificationConfig.from_toml(toml, table="shop.notifications").node == node
    assert BusConfig.from_toml(toml, prefix="").node == NodeConfig(
        lease_seconds=30, reap_period_seconds=2
    )
    assert BusConfig.from_environment().node == NodeConfig(reap_period_seconds=1)
    given = NodeConfig(lease_seconds=3)
    assert (
        BusConfig.from_toml(toml, node=given).node
        == BusConfig.from_environment(node=given).node
        == given
    )


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STICKYBUS_BUS_HANDLER_THREADS", "")
    assert BusConfig.from_environment() == BusConfig()


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("STICKYBUS_BUS_HANDLER_THREADS", "many", "handler_threads='many'"),
        ("STICKYBUS_BUS_HANDLER_TREADS", "3", "did you mean handler_threads?"),
        ("STICKYBUS_NODE_BEAT_INTERVAL_SECONDS", "9", "at most a third of lease_seconds"),
        ("STICKYBUS_BUS_NODE", "9", "Its settings come from variables STICKYBUS_NODE_..."),
        ("STICKYBUS_NODE_LEASE_SECOND", "9", "did you mean lease_seconds?"),
        ("STICKYBUS_BUS_RETRY", "exponential", "is not JSON"),
        ("STICKYBUS_BUS_RETRY", '{"kind": "odd"}', "retry: kind='odd'"),
    ],
)
def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, message: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        BusConfig.from_environment()
    assert variable in str(caught.value)
    assert variable in str(caught.value.source)


def test_keys_of_the_node_that_stand_where_they_stood_before_go_to_the_node_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    moved = pytest.warns(DeprecationWarning, match=r"use node=NodeConfig\(lease_seconds=\.\.\.\)")
    with moved:
        config = BusConfig(lease_seconds=9)  # type: ignore[call-arg]
    assert config == BusConfig(node=NodeConfig(lease_seconds=9))
    with moved:
        assert config.with_changes(lease_seconds=30).node.lease_seconds == 30  # type: ignore[call-arg]
    file = tmp_path / "service.toml"
    file.write_text("[bus]\nlease_seconds = 9\n[node]\nreap_batch_size = 7\n")
    with moved:
        read = BusConfig.from_toml(file)
    assert (read.node.lease_seconds, read.node.reap_batch_size) == (9, 7)
    monkeypatch.setenv("STICKYBUS_BUS_LEASE_SECONDS", "-9")
    with moved, pytest.raises(ConfigurationError, match="lease_seconds='-9'") as caught:
        BusConfig.from_environment()
    assert "variable STICKYBUS_BUS_LEASE_SECONDS" in str(caught.value)
    with pytest.warns(
        DeprecationWarning, match=r"lease_seconds will be removed in 1\.0: use node\.lease"
    ):
        assert config.lease_seconds == 9


@pytest.mark.parametrize(
    ("keys", "config"),
    [(BusSettings, BusConfig), (QueueSettings, NotificationConfig), (NodeSettings, NodeConfig)],
)
def test_checkers_know_every_key(keys: type, config: type[Settings]) -> None:
    assert set(typing.get_type_hints(keys)) == set(config.model_fields)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[bus]\nhandler_threads = 0\n", "It comes from table [bus] of"),
        ("[bus\n", "can't be read"),
        ("bus = 3\n", "bus in"),
        ("[node]\nlease_seconds = 0\n", "It comes from table [node] of"),
        ("[bus.node]\nlease_seconds = 9\n", "from the TOML table [node], for all that share them"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        BusConfig.from_toml(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_an_error_and_a_missing_table_is_not(tmp_path: Path, toml: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.toml can't be read"):
        BusConfig.from_toml(tmp_path / "nothing.toml")
    assert NotificationConfig.from_toml(toml, node=NodeConfig()) == NotificationConfig()


def _documented(config: type[Settings], key: str) -> list[str]:
    """Cells of the key's row in the reference.

    The default is narrowed to this class.
    """
    (row,) = re.findall(rf"^\| `{key}` \|.*\|$", REFERENCE, re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    per_class = {
        BusConfig: r"bus: (`[^`]*`);.*",
        NotificationConfig: r".*notifications: (`[^`]*`)",
    }
    if config in per_class:
        cells[2] = re.sub(per_class[config], r"\1", cells[2])
    return cells


@pytest.mark.parametrize(
    ("config", "key"), [(config, key) for config in CONFIGS for key in config.model_fields]
)
def test_every_key_is_in_the_reference_with_its_default_and_its_variable(
    config: type[Settings], key: str
) -> None:
    _, kind, default, allowed, variable, meaning = _documented(config, key)
    value = getattr(config(), key)
    shown = f"{type(value).__name__}()" if isinstance(value, Settings) else str(value)
    assert default.startswith("not set" if value is None else f"`{shown}`")
    prefix = (NodeConfig if config is NodeConfig else BusConfig).environment_prefix
    section = config.sections.get(key)
    assert variable.startswith(
        f"`{section.environment_prefix}..." if section else f"`{prefix}{key.upper()}`"
    )
    assert kind
    assert allowed
    assert meaning


def test_the_reference_has_no_key_that_does_not_exist() -> None:
    keys = re.findall(r"^\| `(\w+)` \|.*`STICKYBUS_(?:BUS|NODE)_", REFERENCE, re.MULTILINE)
    assert set(keys) == {key for config in CONFIGS for key in config.model_fields}

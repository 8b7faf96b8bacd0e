"""The manifests of the Kubernetes guide are YAML, and their commands and variables exist."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mkdocs.utils.yaml import yaml_load

from stickybus import BusConfig, NodeConfig, NotificationConfig

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "kubernetes.md"
MANIFESTS: list[Any] = [
    yaml_load(block)
    for block in re.findall(
        r"^```yaml\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
]


def _values(node: Any, key: str) -> Iterator[Any]:
    """Every value of `key`, at any depth."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    if isinstance(node, dict) and key in node:
        yield node[key]
    for child in children:
        yield from _values(child, key)


COMMANDS = list(_values(MANIFESTS, "args"))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[1:3]))
def test_a_command_and_its_options_exist(command: list[str]) -> None:
    program, *arguments = command
    assert program == "stickybus"
    # The options are read before the help is shown.
    shown = subprocess.run(
        (
            sys.executable,
            "-c",
            "from stickybus.cli import main; raise SystemExit(main())",
            *arguments,
            "--help",
        ),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr


def test_the_variables_are_those_of_the_configuration() -> None:
    known = {
        f"{config.environment_prefix}{key.upper()}"
        for config in (BusConfig, NotificationConfig, NodeConfig)
        for key in config.model_fields
    }
    named = {one["name"] for variables in _values(MANIFESTS, "env") for one in variables}
    assert "STICKYBUS_URL" in named
    assert {name for name in named if name.startswith("STICKYBUS_")} <= known | {"STICKYBUS_URL"}


def test_the_grace_period_is_longer_than_the_stops_of_a_bus_and_a_service() -> None:
    (period,) = _values(MANIFESTS, "terminationGracePeriodSeconds")
    stops = BusConfig().shutdown_timeout_seconds + NotificationConfig().shutdown_timeout_seconds
    assert period >= stops + 15

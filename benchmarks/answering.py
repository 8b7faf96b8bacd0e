"""How a process of a benchmark answers the one that has started it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any


def answer(commands: Mapping[str, Callable[..., Any]]) -> None:
    """Run what each line of the input names, and answer with a line of JSON, until it ends."""
    for line in sys.stdin:
        command, *arguments = line.split()
        print(json.dumps(commands[command](*arguments)), flush=True)

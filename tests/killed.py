"""Death by SIGKILL, at a point that the process was told."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any


def die() -> None:
    """End as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_after(place: object, name: str, calls: int = 1) -> None:
    """Die when `place.name` returns from its last call, of which there are `calls`."""
    former: Callable[..., Any] = getattr(place, name)
    done = 0

    def changed(*arguments: Any, **options: Any) -> Any:
        nonlocal done
        answer = former(*arguments, **options)
        done += 1
        if done == calls:
            die()
        return answer

    setattr(place, name, changed)

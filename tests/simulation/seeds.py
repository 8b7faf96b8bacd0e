"""From a seed to a result, and from a failing seed to the shortest list of steps that still fails."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

from tests.simulation.database import Databases
from tests.simulation.generator import Generator, settings_of
from tests.simulation.process import Settings
from tests.simulation.simulation import Result, simulate, simulating
from tests.simulation.steps import Step


def run_seed(databases: Databases, seed: int) -> tuple[Settings, list[Step], Result]:
    """Simulate a seed; its settings, the steps that it chose, and the result."""
    random = Random(seed)
    settings = settings_of(random)
    generator = Generator(random, settings)
    steps = generator.first()
    with simulating(databases, settings) as simulation:
        for step in steps:
            simulation.take(step)
        for _ in range(generator.length):
            step = generator.next(simulation)
            steps.append(step)
            simulation.take(step)
        simulation.rest()
        return settings, steps, simulation.result()


def shrink(
    databases: Databases, settings: Settings, steps: Sequence[Step], *, seconds: float = 30.0
) -> tuple[list[Step], Result]:
    """Leave out steps as long as one of the same invariants is violated, for so long; what is left, and its result."""
    least, result = list(steps), simulate(databases, settings, steps)
    wanted = {violation.invariant for violation in result.violations}
    deadline = time.monotonic() + seconds
    size = max(1, len(least) // 2)
    while time.monotonic() < deadline:
        place, shorter = 0, False
        while place < len(least) and time.monotonic() < deadline:
            tried = least[:place] + least[place + size :]
            found = simulate(databases, settings, tried)
            if wanted & {violation.invariant for violation in found.violations}:
                least, result, shorter = tried, found, True
            else:
                place += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return least, result

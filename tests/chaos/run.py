"""One run: a scenario on a database in a mode, from the first process to the verdict."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from devtools.folders import data_folder
from stickybus import Mode
from tests.chaos.member import Settings
from tests.chaos.scenarios import Scenario, Sizes
from tests.chaos.stage import Stage, StageError, Target
from tests.chaos.verdict import Result, result_of

RATE = 15.0
"""Transactions per second of each poster; nodes post half as many."""


def run(
    scenario: Scenario,
    target: Target,
    mode: Mode,
    sizes: Sizes,
    *,
    seed: int,
    say: Callable[[str], None],
) -> Result:
    """Run, judge and measure.

    What a bad run has left (journals, logs, an SQLite file) is kept, and its folder told.
    """
    folder = Path(tempfile.mkdtemp(prefix="stickybus-chaos-", dir=data_folder(durable=False)))
    settings = Settings(
        name="",
        number=0,
        url="",
        folder=folder,
        delivers=False,
        rate=RATE,
        mode=mode,
        poisons=int(sizes.of(*scenario.poisons)),
        **scenario.settings,
    )
    say("starting")
    with Stage(
        target,
        settings,
        seed=seed,
        through_proxy=scenario.through_proxy,
        clock_offsets=scenario.clock_offsets,
        say=say,
    ) as stage:
        if not stage.wait(lambda: stage.ended() > 0, "the first entry has ended"):
            raise StageError(f"nothing was handled; see {folder}")
        stage.pause(sizes.of(4.0, 1.5))
        say("faults")
        scenario.act(stage, sizes)
        stage.rest()
        result = result_of(stage, settings, scenario=scenario.name, seed=seed)
    if result.good:
        shutil.rmtree(folder)
    else:
        result.problems.append(f"left for inspection: {folder}")
    return result

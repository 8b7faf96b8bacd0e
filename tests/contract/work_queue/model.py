"""The ground on which models of work queues stand: a queue of their own, whose time they move."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from queue_core.runtime.manual_clock import ManualClock
from tests.template import template
from work_queue.work_queue import WorkQueue

CLAIMANTS = ("me", "you")


class Machine(RuleBasedStateMachine):
    """A work queue in a file, and a manual clock. A subclass has the model and its rules."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.clock = ManualClock()
        path = Path(self.folder.name) / "model.db"
        shutil.copy(template(), path)
        self.stored = WorkQueue(f"sqlite:///{path}", clock=self.clock)
        self.work = self.reached(self.stored)

    def reached(self, stored: WorkQueue) -> WorkQueue:
        """What calls it."""
        return stored

    def teardown(self) -> None:
        self.work.close()
        self.stored.close()
        self.folder.cleanup()

    @rule(seconds=st.sampled_from([0.5, 1, 5, 70]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)


def run(machine: type[Machine], examples: int, *phases: Phase) -> None:
    """Let Hypothesis make that many examples of calls."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            phases=phases,
            # A random example would fail in someone else's change, or miss a planted bug there.
            derandomize=True,
            database=None,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

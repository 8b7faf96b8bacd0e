"""The product at work in half a minute.

Three nodes share an SQLite file, one of them is killed, and the books are checked.

`run` is the parent; the nodes are processes of their own (`stickybus.demo.node`).
"""

from __future__ import annotations

import json as json_format
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from stickybus.demo import shop
from stickybus.demo.cluster import Cluster, NodeDiedError
from stickybus.demo.node import Share, ledger_path, read_ledger
from stickybus.demo.observer import Observer, View
from stickybus.demo.screen import Screen
from stickybus.demo.verdict import Verdict, judge

LOOK_SECONDS = 0.1
CALM_SHARE = 3
"""One event of this many is posted at rest, the others in the rush."""
MOST_CALM = 80
"""Most events that a node posts at rest."""
FIRST_REMINDER_SECONDS, LAST_REMINDER_SECONDS = 0.5, 12.0

__all__ = ["run"]


def run(*, entries: int = 1000, notifications: int = 50, json: bool = False) -> int:
    """Show the way of `entries` events and `notifications` notifications.

    Returns 0 only if nothing was lost.

    Needs no server: all happens in a temporary folder, which is kept if something went wrong. On a
    terminal it moves, in a pipe it is text; `json` writes one JSON object to standard output
    instead. As it starts processes, a script that calls it guards the call by `if __name__ ==
    "__main__"`.
    """
    folder = Path(tempfile.mkdtemp(prefix="stickybus-demo-"))
    expected = {"bus": entries, "shop:reminders": notifications}
    keep = False
    shop.create_tables(folder)
    observer = Observer(folder)
    try:
        with Screen(expected=expected, quiet=json) as screen:
            demo = _Demo(folder, observer, screen, entries, notifications)
            demo.play()
        keep = bool(demo.verdict.faults)
        if json:
            sys.stdout.write(json_format.dumps(demo.report(), indent=2) + "\n")
        screen.verdict(demo.verdict, killed_with=demo.killed_with, truncated=demo.truncated)
        if keep:
            screen.remark(f"The database, the ledgers and the logs are kept in {folder}")
        return int(keep)
    finally:
        observer.close()
        if not keep:
            shutil.rmtree(folder)


def shares(folder: Path, entries: int, notifications: int) -> list[Share]:
    """Return the share of each node.

    The doomed node comes first, so that it has something to post even if there is little.
    """
    order = sorted(shop.NODES, key=lambda name: name != shop.DOOMED)
    span = LAST_REMINDER_SECONDS - FIRST_REMINDER_SECONDS
    found = []
    for place, name in enumerate(order):
        numbers = range(place + 1, entries + 1, len(order))
        calm = min(MOST_CALM, len(numbers) // CALM_SHARE)
        reminders = [
            (number, FIRST_REMINDER_SECONDS + span * number / max(1, notifications))
            for number in range(place + 1, notifications + 1, len(order))
        ]
        slow = name == shop.DOOMED
        found.append(
            Share(
                name,
                folder,
                numbers[:calm],
                numbers[calm:],
                reminders,
                shop.SLOW_HANDLER_SECONDS if slow else shop.HANDLER_SECONDS,
            )
        )
    return found


class _UnfinishedError(Exception):
    """A step took too long."""


class _Demo:
    """One performance."""

    def __init__(
        self, folder: Path, observer: Observer, screen: Screen, entries: int, notifications: int
    ) -> None:
        self._folder = folder
        self._observer = observer
        self._screen = screen
        self._entries, self._notifications = entries, notifications
        self._patience_seconds = 45 + entries / 50
        self._said = set[tuple[str, str]]()
        self._killed = ""
        self._killed_date: datetime | None = None
        self.killed_with = 0
        self.truncated: int | None = None
        self.verdict = Verdict(0, 0, 0)

    def play(self) -> None:
        """Play the whole demo."""
        faults = []
        try:
            with Cluster(shares(self._folder, self._entries, self._notifications)) as cluster:
                self._cluster = cluster
                self._open()
                self._kill()
                self._recover()
                self.verdict = self._judge()
                self._truncate()
                if not cluster.stop():
                    faults.append("a node did not stop as it should")
        except (_UnfinishedError, NodeDiedError) as error:
            self.verdict = self._judge()
            faults.append(str(error))
        self.verdict.faults[:0] = faults

    # -- the acts ---------------------------------------------------------------------------------

    def _open(self) -> None:
        names = ", ".join(shop.NODES)
        self._screen.tell(f"{names} start; each posts its share, and runs its own posts")
        self._until(lambda _view: all((name, "live") in self._said for name in shop.NODES), "start")
        self._cluster.say("go")
        self._screen.tell(
            f"All are live. {self._entries:,} events, {self._notifications:,} notifications: go"
        )

    def _kill(self) -> None:
        doomed = shop.DOOMED
        self._until(
            lambda _view: (doomed, "posted") in self._said, f"post all of {doomed}'s events"
        )
        self._cluster.kill(doomed)
        self._killed, self._killed_date = doomed, datetime.now(UTC)
        self.killed_with = self._look().node(doomed).running
        self._screen.tell(
            f"[red]{doomed} is killed[/] (SIGKILL, pid {self._cluster.pid(doomed)}) with "
            f"[bold]{self.killed_with:,}[/] entries in hand"
        )

    def _recover(self) -> None:
        doomed = shop.DOOMED
        view = self._until(
            lambda _view: self._observer.states().get(doomed) == "DEAD", f"declare {doomed} dead"
        )
        self._screen.tell(
            f"{doomed} was silent for its whole lease: declared dead, its entries go to the others"
        )
        view = self._until(
            lambda view: (
                view.node(doomed).running == 0 and view.node(doomed).reaped >= self.killed_with
            ),
            f"reap {doomed}'s entries",
        )
        self._screen.tell(
            f"[bold]{view.node(doomed).reaped:,}[/] entries reaped, each with a copy for any node"
        )
        everything = self._entries + self._notifications
        self._until(
            lambda view: (
                view.ended >= everything and not any(queue.running for queue in view.queues)
            ),
            "bring all entries to their end",
        )
        self._screen.tell(f"All {everything:,} have reached their end")

    def _judge(self) -> Verdict:
        ledger = [
            line for name in shop.NODES for line in read_ledger(ledger_path(self._folder, name))
        ]
        events, reminders = self._observer.events(), self._observer.reminders()
        verdict = judge(self._folder, ledger, events, reminders, killed_date=self._killed_date)
        for posted, wanted, what in (
            (verdict.posted_events, self._entries, "events"),
            (verdict.posted_notifications, self._notifications, "notifications"),
        ):
            if posted != wanted:
                verdict.faults.append(f"{posted:,} {what} were committed, not {wanted:,}")
        self._screen.tell("The posters' ledgers are compared with history")
        return verdict

    def _truncate(self) -> None:
        self.truncated = self._observer.truncate()
        self._screen.tell(f"History truncated: [bold]{self.truncated:,}[/] rows")

    # -- watching ---------------------------------------------------------------------------------

    def _look(self) -> View:
        view = self._observer.look()
        pids = {name: self._cluster.pid(name) for name in shop.NODES}
        self._screen.show(view, pids, killed=self._killed)
        return view

    def _until(self, condition: Callable[[View], bool], step: str) -> View:
        """Watch until `condition` holds.

        Raises NodeDiedError, and _UnfinishedError when it takes too long.
        """
        deadline = self._screen.seconds + self._patience_seconds
        while True:
            view = self._look()
            if condition(view):
                return view
            if self._screen.seconds > deadline:
                raise _UnfinishedError(
                    f"it took more than {self._patience_seconds:.0f} s to {step}"
                )
            self._said.update(self._cluster.heard(LOOK_SECONDS))

    def report(self) -> dict[str, object]:
        """All facts, as plain JSON."""
        return {
            "ok": not self.verdict.faults,
            "seconds": round(self._screen.seconds, 1),
            "database": "sqlite",
            "nodes": list(shop.NODES),
            "lease_seconds": shop.LEASE_SECONDS,
            "killed": shop.DOOMED,
            "killed_with": self.killed_with,
            "truncated": self.truncated,
            **asdict(self.verdict),
        }

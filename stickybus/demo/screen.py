"""The picture of the demo.

A terminal shows the cluster moving. A pipe gets the story line by line.
"""

from __future__ import annotations

from time import monotonic
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stickybus.demo import shop
from stickybus.demo.observer import NodeView, QueueView, View
from stickybus.demo.verdict import Latency, Verdict

PIPE_WIDTH = 110
_STATES = {"LIVE": "green", "DEAD": "red", "STOPPED": "dim", "GONE": "dim", "KILLED": "red"}


class Screen:
    """A context that shows; `quiet` shows nothing at all."""

    def __init__(self, *, expected: dict[str, int], quiet: bool) -> None:
        self._console = Console(quiet=quiet, highlight=False)
        if not self._console.is_terminal:
            self._console = Console(quiet=quiet, highlight=False, width=PIPE_WIDTH)
        self._expected = expected
        self._began = monotonic()
        self._story: list[Text] = []
        self._view: View | None = None
        self._pids: dict[str, int] = {}
        self._killed = ""
        self._live = Live(
            console=self._console,
            get_renderable=self._picture,
            refresh_per_second=8,
            auto_refresh=True,
        )

    def __enter__(self) -> Self:
        self._console.print(_title())
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._live.is_started:
            self._live.stop()

    @property
    def seconds(self) -> float:
        """Since the screen was made."""
        return monotonic() - self._began

    def show(self, view: View, pids: dict[str, int], *, killed: str = "") -> None:
        """Redraw the picture; `killed` is a node whose death the cluster may not know yet."""
        self._view, self._pids, self._killed = view, pids, killed

    def tell(self, markup: str) -> None:
        """Go on with the story."""
        line = Text.assemble((f"{self.seconds:6.1f} s  ", "cyan"), Text.from_markup(markup))
        self._story.append(line)
        if not self._live.is_started:
            self._console.print(line)

    def _picture(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self._view is not None:
            parts += [self._nodes(self._view), Text(), self._queues(self._view), Text()]
        return Group(*parts, *self._story)

    def _nodes(self, view: View) -> Table:
        table = _table(
            "node", "state", "pid", "posted", "in hand", "processed", "failed", "reaped from it"
        )
        for node in view.nodes:
            state = "KILLED" if node.name == self._killed and node.state == "LIVE" else node.state
            table.add_row(
                Text(node.name, "bold"),
                Text(f"● {state or 'starting'}", _STATES.get(state, "dim")),
                str(self._pids.get(node.name, "")),
                *_numbers(node),
            )
        return table

    def _queues(self, view: View) -> Table:
        table = _table(
            "queue", "posted", "scheduled", "ready", "running", "processed", "failed", "", ""
        )
        for queue in view.queues:
            total = max(1, self._expected.get(queue.name, 0))
            table.add_row(
                Text(queue.name, "bold"),
                *_numbers(queue),
                ProgressBar(total=total, completed=queue.ended, width=24),
                f"{100 * queue.ended // total} %",
            )
        return table

    def verdict(self, verdict: Verdict, *, killed_with: int, truncated: int | None) -> None:
        """The panel at the end."""
        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="bold", no_wrap=True)
        facts.add_column()
        for heading, text in _facts(verdict, killed_with=killed_with, truncated=truncated):
            facts.add_row(heading, text)
        good = not verdict.faults
        shown = verdict.faults[:10]
        if len(verdict.faults) > len(shown):
            shown = [*shown, f"and {len(verdict.faults) - len(shown)} more"]
        title = "Nothing was lost" if good else "This must not happen"
        body = facts if good else Group(*(Text(f"✗ {fault}") for fault in shown), Text(), facts)
        color = "green" if good else "red"
        self._console.print(Text())
        self._console.print(
            Panel(
                body,
                title=f"[bold]{'✓' if good else '✗'} {title}",
                border_style=color,
                padding=(1, 2),
            )
        )

    def remark(self, text: str) -> None:
        """A line below the panel."""
        self._console.print(Text(text, "dim"))


def _title() -> Text:
    return Text.assemble(
        ("Stickybus", "bold cyan"),
        f"  {len(shop.NODES)} nodes, each a process, on one SQLite file; a lease of "
        f"{shop.LEASE_SECONDS:g} s (15 s by default)\n",
    )


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, heading in enumerate(headings):
        words = place == 0 or heading in {"state", ""}
        table.add_column(heading, justify="left" if words else "right", no_wrap=True)
    return table


def _numbers(line: NodeView | QueueView) -> list[str]:
    names = (
        ("posted", "running", "processed", "failed", "reaped")
        if isinstance(line, NodeView)
        else ("posted", "scheduled", "ready", "running", "processed", "failed")
    )
    return [f"{getattr(line, name):,}" for name in names]


def _facts(verdict: Verdict, *, killed_with: int, truncated: int | None) -> list[tuple[str, str]]:
    ended, back_after = verdict.processed + verdict.failed, verdict.back_after_seconds
    facts = [
        (
            "Ledger",
            (
                f"{verdict.posted_events:,} events and {verdict.posted_notifications:,} "
                f"notifications committed, {ended:,} in history with one end each"
            ),
        ),
        (
            "Rolled back",
            f"{verdict.rolled_back:,} orders in a transaction that did not commit: none delivered",
        ),
        (
            "Failures",
            (
                f"{verdict.failed_once:,} failed once and were retried; {verdict.failed:,} failed "
                f"{shop.RUNS} times and ended FAILED, with the reason"
            ),
        ),
        (
            "Killed node",
            f"{shop.DOOMED} died with {killed_with:,} entries in hand; {verdict.reaped:,} reaped "
            "and run elsewhere"
            + (f" within {back_after:.1f} s" if back_after is not None else "")
            + f", {verdict.moved:,} not yet due moved",
        ),
        ("At rest", f"commit to start: {_milliseconds(verdict.calm_latency_ms)}"),
    ]
    if not verdict.faults:
        books = "each payment is booked once: its handler and its outcome share a transaction"
        facts.insert(-1, ("Exactly once", books))
    if verdict.rush_per_second is not None:
        rush = f"{verdict.rush_per_second:,.0f} events/s on two nodes; commit to start: "
        facts.append(("In the rush", rush + _milliseconds(verdict.rush_latency_ms)))
    facts.append(
        ("Notifications", f"due date to start: {_milliseconds(verdict.notification_latency_ms)}")
    )
    if truncated is not None:
        facts.append(("History", f"{truncated:,} rows truncated while the nodes ran"))
    return facts


def _milliseconds(latency: Latency | None) -> str:
    return "-" if latency is None else f"p50 {latency.p50:.1f} ms, p99 {latency.p99:.1f} ms"

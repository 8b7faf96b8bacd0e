"""`stickybus tasks`: tasks and docs of a work queue, claimed, written, read and deleted by hand."""

from __future__ import annotations

import typer

from stickybus.cli.clearing import clear
from stickybus.cli.task_changes import ins, mod, rm
from stickybus.cli.task_claims import claim, tryclaimid
from stickybus.cli.task_docs import doc_put, doc_rm, docs, ns
from stickybus.cli.task_history import finished, histories, keep_history, truncate_history
from stickybus.cli.task_limits import limit, limits, unlimit
from stickybus.cli.task_reads import stats, time, ts
from stickybus.cli.task_replay import replay
from stickybus.cli.task_schedules import recur, recurring, stop_recurring

app = typer.Typer(
    no_args_is_help=True,
    help="Claim, write, read and delete tasks and docs of a work queue, of a database or at a "
    "service's address.",
)

PANELS = {
    "Tasks": (ins, claim, tryclaimid, mod, rm, ts, replay),
    "Queues": (stats, clear, limit, unlimit, limits, recur, recurring, stop_recurring, time),
    "History": (keep_history, histories, finished, truncate_history),
    "Docs": (docs, doc_put, doc_rm, ns),
}
for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.command("qs", rich_help_panel="Queues")(stats)
app.command("namespaces", rich_help_panel="Docs")(ns)

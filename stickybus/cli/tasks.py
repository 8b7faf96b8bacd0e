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

for command in (claim, tryclaimid, ins, mod, rm, clear, replay, ts):
    app.command()(command)
app.command("qs")(stats)
app.command("stats")(stats)
for command in (limit, unlimit, limits, recur, recurring, time, docs, ns):
    app.command()(command)
app.command("stop-recurring")(stop_recurring)
app.command("keep-history")(keep_history)
app.command("namespaces")(ns)
app.command()(histories)
app.command()(finished)
app.command("truncate-history")(truncate_history)
app.command("doc-put")(doc_put)
app.command("doc-rm")(doc_rm)

"""The command `stickybus`: one module for each noun.

Exit codes: 0 done; 1 bad data, or a part that could not be done; 2 usage; 3 the database can't be
reached, or its schema doesn't fit. An error is one line on standard error.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence

import typer

from queue_core.errors import (
    ConfigurationError,
    DatabaseUnreachableError,
    InvalidPostError,
    InvalidRequestError,
    SchemaError,
    StickybusError,
)
from stickybus.cli import (
    entries,
    failed,
    groups,
    history,
    keys,
    logs,
    order,
    queues,
    schema,
    stats,
    tasks,
)
from stickybus.cli.archive import archive, compact, expire
from stickybus.cli.archive_log import log
from stickybus.cli.demo import demo
from stickybus.cli.doctor import doctor
from stickybus.cli.erasure import erase
from stickybus.cli.exit_codes import BAD_DATA, DATABASE, DONE, INTERRUPTED, USAGE
from stickybus.cli.export import export
from stickybus.cli.help_texts import reflow
from stickybus.cli.limits import limit, limits, unlimit
from stickybus.cli.nodes import nodes
from stickybus.cli.output import errors, visible
from stickybus.cli.pauses import pause, pauses, resume
from stickybus.cli.post import post, schedule
from stickybus.cli.recurring import recurring
from stickybus.cli.replay import replay
from stickybus.cli.report import report
from stickybus.cli.serve import serve
from stickybus.cli.status import status
from stickybus.cli.usage import UsageError
from stickybus.cli.verify import verify
from stickybus.cli.versions import version
from stickybus.cli.worker import worker
from stickybus.cli.workers import workers

app = typer.Typer(
    name="stickybus",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "A persistent event bus, notification queues and a work queue on your SQL database. "
        "`stickybus COMMAND --help` shows the options of a command, with examples."
    ),
)
app.callback()(version)
PANELS: dict[str, tuple[Callable[..., None] | tuple[str, typer.Typer], ...]] = {
    "Set up and run": (demo, worker, ("schema", schema.app)),
    "Entries and queues": (
        post,
        schedule,
        recurring,
        ("entries", entries.app),
        ("failed", failed.app),
        ("queues", queues.app),
        ("order", order.app),
        ("keys", keys.app),
        ("groups", groups.app),
    ),
    "Work queue": (serve, ("tasks", tasks.app)),
    "Pauses and limits": (pause, resume, pauses, limit, unlimit, limits),
    "Operation": (status, doctor, nodes, workers, ("stats", stats.app)),
    "History": (report, ("history", history.app)),
}
for panel, members in PANELS.items():
    for member in members:
        if isinstance(member, tuple):
            app.add_typer(member[1], name=member[0], rich_help_panel=panel)
        else:
            app.command(rich_help_panel=panel)(member)
for command in (archive, compact, expire, erase, verify, export, log, replay):
    history.app.command(rich_help_panel="Archives")(command)
reflow(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` default to the process's own."""
    logs.configure("warning")
    _write_any_letter()
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = app(args=given, prog_name="stickybus", standalone_mode=False)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except (DatabaseUnreachableError, SchemaError) as error:
        return _fail(_one_line(error), DATABASE)
    # Lines of a file are no options: `post` and `schedule` tell the bad ones themselves.
    except (ConfigurationError, InvalidPostError, InvalidRequestError, UsageError) as error:
        return _fail(_one_line(error), USAGE)
    except (StickybusError, OSError) as error:  # a full disk, or a folder that can't be written
        return _fail(_one_line(error), BAD_DATA)
    except typer.Abort:
        return _fail("interrupted", INTERRUPTED)
    except Exception as error:
        # Typer's own usage errors; the name of their base class differs between versions of Typer.
        format_message = getattr(error, "format_message", None)
        if format_message is not None:
            # Typer lets Pydantic compare values, which tells the class of its error, too.
            message = format_message().replace(": Value error, ", ": ")
            return _fail(message, USAGE) if message else USAGE
        from sqlalchemy.exc import DBAPIError

        if isinstance(error, DBAPIError):
            return _fail(f"the database refused: {_one_line(error.orig or error)}", DATABASE)
        raise
    if code == INTERRUPTED:  # Typer makes an exit code of Ctrl-C, and says nothing
        return _fail("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else DONE


def _write_any_letter() -> None:
    """Let letters that the streams' encoding lacks be written as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _one_line(error: BaseException) -> str:
    notes = getattr(error, "__notes__", ())
    return " ".join(" ".join([str(error), *notes]).split())


def _fail(message: str, code: int) -> int:
    errors().print(f"stickybus: {visible(message)}", style="red", markup=False)
    return code

"""The arguments and results of jobs, as a command line has them."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from dataclasses import replace
from datetime import datetime

import msgspec

from history_pipeline.scale import DEFAULT_SCALE, HELP, Scale

URL_VARIABLE = "STICKYBUS_URL"
"""The environment may name the database, as it does for commands."""


class JobParser(ArgumentParser):
    """A parser whose `--help` shows a module's docstring as it is, with its example."""

    def __init__(self, description: str | None) -> None:
        super().__init__(description=description, formatter_class=RawDescriptionHelpFormatter)

    def add_url(self, *, required: bool = True) -> None:
        """Add the database. No list of processes shows the one that stands in the environment."""
        default = os.environ.get(URL_VARIABLE)
        self.add_argument(
            "--url",
            required=required and not default,
            default=default,
            help=(
                f"SQLAlchemy URL, as the executors reach the database; default: {URL_VARIABLE} of "
                "the environment"
            ),
        )

    def add_target(self, flag: str) -> None:
        """Add the directory of the archive, as `target`."""
        self.add_argument(
            flag, required=True, dest="target", help="directory that driver and executors share"
        )

    def add_table(self, text: str = "main table; work_task_history: finished tasks") -> None:
        """Add the table whose history it is."""
        self.add_argument("--table", default="bus_events", help=text)

    def add_date(self, flag: str, text: str, *, required: bool = False) -> None:
        """Add a date."""
        self.add_argument(
            flag, type=_moment, required=required, help=f"{text}: ISO 8601 with an offset"
        )

    def add_scale(self, *names: str) -> None:
        """Add some of the sizes of `Scale`."""
        for name in names:
            default = getattr(DEFAULT_SCALE, name)
            self.add_argument(
                f"--{name.replace('_', '-')}",
                type=int,
                default=default,
                help=f"{HELP[name]}; default: {default}",
            )


def scale(given: Namespace) -> Scale:
    """The sizes that were given. Raises ConfigurationError for one that can't work."""
    known = {name: value for name, value in vars(given).items() if name in HELP}
    return replace(DEFAULT_SCALE, **known)


def tell(result: object) -> None:
    """Write what a job has done to standard output, as one JSON document."""
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.utcoffset() is None:
        raise ArgumentTypeError(
            f"{text!r} is no date with a time zone, such as 2026-01-31T00:00:00Z"
        )
    return found

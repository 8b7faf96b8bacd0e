"""`stickybus --version`: the versions that a report of an error should name."""

from __future__ import annotations

import platform
import sqlite3
from importlib import metadata
from typing import Annotated

import typer

DRIVERS = ("psycopg", "PyMySQL")
"""Packages that the extras for databases install."""


def _show(asked: bool) -> None:  # noqa: FBT001 -- Typer hands the option's value over so
    if not asked:
        return
    print(f"stickybus {_version('stickybus') or 'of a source tree that is not installed'}")
    print(f"Python {platform.python_version()}")
    print(f"SQLite {sqlite3.sqlite_version}")
    for package in ("SQLAlchemy", *DRIVERS):
        if found := _version(package):
            print(f"{package} {found}")
    raise typer.Exit


def _version(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    # Metadata are read in a tenth of the time that an import takes.
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def version(
    *,
    show: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show,
            is_eager=True,
            help=(
                "Show the versions of Stickybus, Python, SQLite, SQLAlchemy and installed drivers."
            ),
        ),
    ] = False,
) -> None:
    """The option of the command itself, beside those of its commands."""

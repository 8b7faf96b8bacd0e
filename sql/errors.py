"""Why a database can't be opened, told without a database's name in the type."""

from __future__ import annotations


class UnsupportedDatabaseError(ValueError):
    """A URL of a database that Stickybus does not run on."""


class InheritedFileError(RuntimeError):
    """A child process of a fork opens a file that its parent had open, and that is bound to the process that opened it."""


class MissingDriverError(ModuleNotFoundError):
    """A database's driver is not installed."""

"""The reasons for which a database can't be opened."""

from __future__ import annotations


class UnsupportedDatabaseError(ValueError):
    """A URL of a database that Stickybus does not run on."""


class InheritedFileError(RuntimeError):
    """A child of a fork opens a file that its parent had open. Its locks belong to the parent."""


class MissingDriverError(ModuleNotFoundError):
    """A database's driver is not installed."""

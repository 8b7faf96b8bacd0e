"""Names that are known without SQLAlchemy, which takes long to load."""

from __future__ import annotations

DIALECTS = ("sqlite", "postgresql", "mysql", "mariadb")
"""SQLAlchemy's names of the databases that are supported."""
DEFAULT_TABLES = ("bus_events", "notifications")
"""The main tables of a bus and of a service that name none."""

"""The work queue on a database."""

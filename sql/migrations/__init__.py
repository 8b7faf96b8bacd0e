"""Alembic migrations, as package data; `sql.schema` runs them."""

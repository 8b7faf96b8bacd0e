"""An application's models, for sessions of SQLAlchemy's ORM."""

from __future__ import annotations

from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    mapped_column,
)


class Base(DeclarativeBase):
    """The application's models."""


class OrderRow(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    note: Mapped[str | None]

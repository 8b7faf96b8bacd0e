"""`stickybus demo`: the product at work, in one minute."""

from __future__ import annotations

from typing import Annotated

import typer

from stickybus.cli.target import Json


def demo(
    *,
    entries: Annotated[int, typer.Option(min=1, help="Events to post.")] = 1000,
    notifications: Annotated[int, typer.Option(min=0, help="Notifications to schedule.")] = 50,
    as_json: Json = False,
) -> None:
    """Post, schedule, fail, retry, kill a node, reap, and check that nothing is lost, on SQLite.

    Examples:
      stickybus demo

      stickybus demo --entries 5000 --json
    """
    from stickybus.demo import run

    raise typer.Exit(run(entries=entries, notifications=notifications, json=as_json))

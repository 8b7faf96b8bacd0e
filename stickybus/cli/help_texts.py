"""Docstrings of commands as help texts: a paragraph is as wide as the terminal."""

from __future__ import annotations

import inspect

import typer


def reflow(app: typer.Typer) -> None:
    """Let the help of all commands of an app flow, and of the groups in it."""
    for command in app.registered_commands:
        command.help = _flowing(inspect.getdoc(command.callback) or "")
    for group in app.registered_groups:
        if group.typer_instance is not None:
            reflow(group.typer_instance)


def _flowing(text: str) -> str:
    """Lines joined within each paragraph; indented lines, which are examples, stay."""
    return "\n\n".join(
        paragraph if "\n " in paragraph else paragraph.replace("\n", " ")
        for paragraph in text.split("\n\n")
    )

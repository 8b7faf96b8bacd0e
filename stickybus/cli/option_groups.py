"""Options that several commands share, declared once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TypeAlias

Command: TypeAlias = Callable[..., None]


def grouped(**groups: Callable[..., object]) -> Callable[[Command], Command]:
    """Decorate a command: in the place of an argument, it has the options of a group.

    A group is a function, whose parameters are options. The argument is its value.
    """

    def decorate(command: Command) -> Command:
        options = {
            name: signature(group, eval_str=True).parameters for name, group in groups.items()
        }
        parameters = list[Parameter]()
        for parameter in signature(command, eval_str=True).parameters.values():
            parameters += options.get(parameter.name, {parameter.name: parameter}).values()

        @wraps(command)
        def run(**given: object) -> None:
            arguments = {
                name: groups[name](**{option: given.pop(option) for option in options[name]})
                for name in groups
            }
            command(**given, **arguments)

        # The annotations that Typer reads.
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate

"""Each option of the command line is written once: commands that share it import it."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

CLI = Path(__file__).parents[2] / "stickybus" / "cli"


def written_twice(sources: dict[str, str]) -> dict[str, list[str]]:
    """The places of each annotated option that is written more than once."""
    places = defaultdict[str, list[str]](list)
    for name, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Subscript(value=ast.Name(id="Annotated")):
                    places[ast.unparse(node)].append(f"{name}:{node.lineno}")
    return {option: found for option, found in places.items() if len(found) > 1}


def test_no_option_is_written_twice() -> None:
    sources = {path.name: path.read_text("utf-8") for path in CLI.rglob("*.py")}
    assert len(sources) > 50
    assert written_twice(sources) == {}


@pytest.mark.parametrize(
    "again",
    [
        "Other = Annotated[int, typer.Option(help='Most.')]",
        "def run(limit: Annotated[int, typer.Option(help='Most.')] = 1) -> None: ...",
    ],
)
def test_an_option_that_is_written_twice_is_found(again: str) -> None:
    first = 'Limit = Annotated[\n    int,\n    typer.Option(help="Most."),\n]'
    found = written_twice({"one.py": first, "other.py": again})
    assert list(found.values()) == [["one.py:1", "other.py:1"]]

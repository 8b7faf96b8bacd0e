"""One word, one meaning: names in the code use the words of the glossary in their meaning."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs/reference/glossary.md"
PACKAGES = ("sql", "queue_core", "bus", "notifications", "work_queue", "stickybus")
FORBIDDEN = {
    "standing": "a status, a count, or what is in processing",
    "single": "autocommit, or one",
    "singles": "autocommit",
    "alone": "autocommit, exclusive, or the only one",
    "settled": "of a date of history; else progress",
    "turns": "a gate, or a lock of writers",
}
"""Words that had several meanings, and what to say instead."""
ALLOWED = {
    # of a date; and the former name of an entry's progress
    "settled": ("dialect.py", "settling.py", "stream.py", "entry.py"),
    "alone": ("dialect.py",),  # a connection in autocommit
    "single": ("arrival.py",),  # JSON's single values
}


def names(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)}


def misused(module: ast.Module, file: str) -> set[str]:
    return {
        f"{name}: say {FORBIDDEN[word]}"
        for name in names(module)
        for word in words(name) & FORBIDDEN.keys()
        if file not in ALLOWED.get(word, ())
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_names_use_words_in_one_meaning(package: str) -> None:
    found = {
        str(path.relative_to(ROOT)): faults
        for path in sorted((ROOT / package).rglob("*.py"))
        if (faults := misused(ast.parse(path.read_text("utf-8")), path.name))
    }
    assert found == {}


def test_a_word_in_another_meaning_is_found() -> None:
    assert misused(
        ast.parse("class QueueStanding:\n    def write_single(self, alone): ..."), "x.py"
    ) == {
        f"QueueStanding: say {FORBIDDEN['standing']}",
        f"write_single: say {FORBIDDEN['single']}",
        f"alone: say {FORBIDDEN['alone']}",
    }


def test_the_glossary_has_each_word_once() -> None:
    listed = re.findall(r"^\| ([a-z][^|]*?) \|", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    assert len(listed) > 20
    assert len(set(listed)) == len(listed)

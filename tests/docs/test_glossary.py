"""One word, one meaning: names in the code use the words of the glossary in their meaning."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages import RELEASED

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs/reference/glossary.md"
TABLES = GLOSSARY.read_text("utf-8").split("\n## Words that the code leaves out\n")
WORDS, LEFT_OUT = (
    dict(re.findall(r"^\| ([a-z][^|]*?) \| ([^|]*) \|$", table, re.MULTILINE)) for table in TABLES
)
"""The words with their meanings, and those that names leave out, with what to say instead."""
FORBIDDEN = {word: say for words, say in LEFT_OUT.items() for word in words.split(", ")}
ALLOWED = {
    # of a date; and the former name of an entry's progress
    "settled": ("dialect.py", "settling.py", "entry.py", "stream_plan.py"),
    "alone": ("dialect.py",),  # a connection in autocommit
    "single": ("arrival.py",),  # JSON's single values
    "parent": ("node.py",),  # of a process
    "publish": ("archiving.py", "publication.py"),  # of a manifest: from then on its files count
    "standing": ("verdict.py",),  # whether a report finds everything, as its JSON calls it
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


@pytest.mark.parametrize("package", RELEASED)
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
    for table, known in zip(TABLES, (WORDS, LEFT_OUT), strict=True):
        listed = re.findall(r"^\| ([a-z][^|]*?) \|", table, re.MULTILINE)
        assert len(known) == len(set(listed)) == len(listed) > 15
    assert len(FORBIDDEN) == len(", ".join(LEFT_OUT).split(", ")) > 40


@pytest.mark.parametrize("word", ALLOWED)
def test_no_exception_outlives_its_reason(word: str) -> None:
    found = {
        path.name
        for package in RELEASED
        for path in (ROOT / package).rglob("*.py")
        for name in names(ast.parse(path.read_text("utf-8")))
        if word in words(name)
    }
    assert found == set(ALLOWED[word])

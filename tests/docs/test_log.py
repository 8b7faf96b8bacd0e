"""The page on the log has each event that is logged, with its level, and no other."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/log.md"
PACKAGES = ("sql", "queue_core", "bus", "notifications", "work_queue", "stickybus")
LEVELS = {name: name for name in ("debug", "info", "warning", "error")} | {"exception": "error"}


@cache
def _sources() -> tuple[ast.AST, ...]:
    return tuple(
        node
        for package in (*PACKAGES, "history_pipeline", "pyspark_stickybus")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
    )


def _texts(node: ast.AST) -> set[str]:
    """Those that an expression may be."""
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp(body=body, orelse=other):
            return _texts(body) | _texts(other)
    return set()


def _logged() -> set[tuple[str, str]]:
    """Each event and its level."""
    found = set[tuple[str, str]]()
    for node in _sources():
        match node:
            case (
                ast.Call(
                    func=ast.Attribute(value=ast.Name(id="log" | "_log"), attr=method),
                    args=[event, *_],
                )
                | ast.Call(
                    func=ast.Name(id="partial"),
                    args=[ast.Attribute(value=ast.Name(id="log" | "_log"), attr=method), event, *_],
                )
            ):
                found |= {(text, LEVELS[method]) for text in _texts(event)}
    return found


def _told() -> set[tuple[str, str]]:
    """The same of the page. Two levels stand for two events, else all have the one."""
    found = set[tuple[str, str]]()
    rows = re.findall(r"^\| (`.+?`) \| ([a-z, ]+) \|", PAGE.read_text(), re.MULTILINE)
    for names, levels in rows:
        events, each = re.findall(r"`(\w+)`", names), levels.split(", ")
        found |= set(zip(events, each * len(events) if len(each) == 1 else each, strict=True))
    return found


def test_the_page_has_each_event_and_its_level() -> None:
    logged = _logged()
    assert len(logged) > 50
    assert logged - _told() == set()


def test_each_event_of_the_page_is_logged() -> None:
    texts = {text for node in _sources() for text in _texts(node)}
    assert {event for event, _level in _told()} - texts == set()

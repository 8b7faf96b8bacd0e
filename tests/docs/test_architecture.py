"""The page and the picture of the rooms are those of the imports."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/architecture.py"


@pytest.fixture(scope="module")
def architecture() -> Any:
    spec = importlib.util.spec_from_file_location("architecture", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_rooms_are_those_of_the_imports(architecture: Any) -> None:
    text = architecture.PAGE.read_text("utf-8")
    for house in architecture.HOUSES:
        begin, end = house.marks
        shown = text.split(begin)[1].split(end)[0]
        assert shown == architecture.table(architecture.rooms(house)), "run scripts/architecture.py"


def test_the_pictures_show_these_rooms(architecture: Any) -> None:
    for house in architecture.HOUSES:
        told = escape(architecture.described(architecture.rooms(house)))
        assert told in house.picture.read_text("utf-8"), "run scripts/architecture.py"


def test_each_file_that_the_page_names_is_there(architecture: Any) -> None:
    files = [
        file.strip("` ")
        for line in architecture.PAGE.read_text("utf-8").splitlines()
        if line.startswith("| ") and ".py`" in line
        for file in line.split("|")[2].split(",")
    ]
    assert len(files) > 10
    packages = [SCRIPT.parents[1] / package for package in ("queue_core", "history_pipeline")]
    assert [file for file in files if not any((room / file).is_file() for room in packages)] == []


def test_a_floor_is_one_above_all_that_a_room_imports(architecture: Any) -> None:
    house = {"roof": {"first", "ground"}, "first": {"ground"}, "ground": set[str]()}
    assert architecture.floors(house) == {"ground": 0, "first": 1, "roof": 2}
    assert architecture.reduced(house) == [("first", "ground"), ("roof", "first")]

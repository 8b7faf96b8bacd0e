"""Draws the rooms of the code and the imports between them, for `docs/explanation/architecture.md`.

    .venv/bin/python scripts/architecture.py

A room is a folder of a package, a module of a package, or a whole package. An arrow is an import:
a module of one room imports a module of the other. `tests/docs/test_architecture.py` compares page
and pictures with the imports.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import grimp

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/explanation/architecture.md"

COLOURS = {
    "stickybus": "#e9d8a6",
    "bus": "#94d2bd",
    "notifications": "#94d2bd",
    "work_queue": "#94d2bd",
    "history_pipeline": "#d9c5e8",
    "queue_core": "#cfe1f2",
    "sql": "#f6cdb5",
}
"""All packages, each with the colour of its rooms."""


class House(NamedTuple):
    """The subject of one picture and one table: some packages, a few of them room by room."""

    name: str
    packages: tuple[str, ...]
    inside: tuple[str, ...]

    @property
    def picture(self) -> Path:
        """The file of the picture."""
        return PAGE.with_name(f"{self.name}.svg")

    @property
    def marks(self) -> tuple[str, str]:
        """The lines of the page between which the table stands."""
        return f"<!-- {self.name}: begin -->\n", f"<!-- {self.name}: end -->\n"

    def room_of(self, module: str) -> str:
        """The room that a module is in."""
        parts = module.split(".")
        return ".".join(parts[:2]) if parts[0] in self.inside else parts[0]


HOUSES = (
    House("architecture", tuple(COLOURS), ("queue_core", "sql")),
    House("architecture-history", ("history_pipeline",), ("history_pipeline",)),
)

Rooms = dict[str, set[str]]


def rooms(house: House) -> Rooms:
    """Each room, and the rooms that it imports."""
    graph = grimp.build_graph(*house.packages, cache_dir=None)
    found = defaultdict[str, set[str]](set)
    for module in graph.modules - set(house.inside):
        if "migrations" in module:
            continue
        uses = found[house.room_of(module)]
        uses |= {
            house.room_of(used)
            for used in graph.find_modules_directly_imported_by(module) - set(house.inside)
        }
    return {room: uses - {room} for room, uses in found.items()}


def floors(found: Rooms) -> dict[str, int]:
    """The floor of each room: one above the highest that it imports."""
    heights = dict[str, int]()

    def height(room: str) -> int:
        if room not in heights:
            heights[room] = 1 + max(map(height, found[room]), default=-1)
        return heights[room]

    for room in found:
        height(room)
    return heights


def reduced(found: Rooms) -> list[tuple[str, str]]:
    """The arrows that no way along others replaces: with all of them nobody would see any."""
    reached = dict[str, set[str]]()

    def below(room: str) -> set[str]:
        if room not in reached:
            reached[room] = set(found[room]).union(*map(below, found[room]))
        return reached[room]

    return sorted(
        (room, used)
        for room, uses in found.items()
        for used in uses
        if not any(used in below(other) for other in uses - {used})
    )


def table(found: Rooms) -> str:
    """The rooms by floor, from the top, with all that they import."""
    heights = floors(found)
    lines = ["| floor | room | imports |", "|--:|---|---|"]
    for room in sorted(found, key=lambda room: (-heights[room], room)):
        uses = ", ".join(f"`{used}`" for used in sorted(found[room]))
        lines.append(f"| {heights[room]} | `{room}` | {uses} |")
    arrows = sum(map(len, found.values()))
    lines += [
        "",
        f"{len(found)} rooms on {max(heights.values()) + 1} floors, {arrows} arrows, none upward.",
    ]
    return "\n".join(lines) + "\n"


def described(found: Rooms) -> str:
    """The subject of the picture, in a line: it stands in the picture's own description."""
    return "; ".join(f"{room} > {used}" for room, used in reduced(found))


def draw(found: Rooms, picture: Path) -> None:
    """Write a picture."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "stickybus"
    heights = floors(found)
    places = dict[str, tuple[float, float]]()
    rows = groupby(sorted(found, key=lambda room: (heights[room], room)), key=heights.__getitem__)
    for floor, row in rows:
        names = list(row)
        for place, room in enumerate(names):
            places[room] = ((place + 0.5 + floor % 2 * 0.15) / len(names), float(floor))
    figure, axes = plt.subplots(figsize=(11, 3 + 0.41 * max(heights.values())))
    for room, used in reduced(found):
        axes.annotate(
            "",
            xy=places[used],
            xytext=places[room],
            arrowprops={
                "arrowstyle": "-|>",
                "color": "#8a8a8a",
                "shrinkA": 12,
                "shrinkB": 17,
                "lw": 0.8,
            },
        )
    for room, (across, up) in places.items():
        package, _, name = room.partition(".")
        axes.text(
            *(across, up, f"{package}\n{name}" if name else package),
            ha="center",
            va="center",
            fontsize=8.5,
            bbox={
                "boxstyle": "round,pad=0.35",
                "facecolor": COLOURS[package],
                "edgecolor": "#555555",
            },
        )
    axes.set_xlim(-0.02, 1.05)
    axes.set_ylim(-0.6, max(heights.values()) + 0.6)
    axes.set_axis_off()
    figure.savefig(
        picture, bbox_inches="tight", metadata={"Date": None, "Description": described(found)}
    )
    plt.close(figure)


def main() -> None:
    """Write page and pictures anew."""
    for house in HOUSES:
        found, (begin, end) = rooms(house), house.marks
        text = PAGE.read_text("utf-8")
        before, after = text.split(begin)[0], text.split(end)[1]
        PAGE.write_text(f"{before}{begin}{table(found)}{end}{after}", "utf-8")
        draw(found, house.picture)


if __name__ == "__main__":
    main()

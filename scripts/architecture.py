"""Draws the rooms of the code and the imports between them, for `docs/explanation/architecture.md`.

    .venv/bin/python scripts/architecture.py

A room is a folder of `queue_core` or `sql`, one of their own modules, or a whole package. An arrow
means that a module of the one imports a module of the other. `tests/docs/test_architecture.py`
compares page and picture with the imports.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/explanation/architecture.md"
PICTURE = ROOT / "docs/explanation/architecture.svg"
BEGIN, END = "<!-- rooms: begin -->\n", "<!-- rooms: end -->\n"

PACKAGES = (
    "stickybus",
    "bus",
    "notifications",
    "work_queue",
    "history_pipeline",
    "queue_core",
    "sql",
)
INSIDE = ("queue_core", "sql")
"""Packages of which each room is shown."""

Rooms = dict[str, set[str]]


def room_of(module: str) -> str:
    """The room that a module is in."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in INSIDE else parts[0]


def rooms() -> Rooms:
    """Each room, and the rooms that it imports."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    found = defaultdict[str, set[str]](set)
    for module in graph.modules - set(INSIDE):
        if "migrations" in module:
            continue
        uses = found[room_of(module)]
        uses |= {
            room_of(used) for used in graph.find_modules_directly_imported_by(module) - set(INSIDE)
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
    """What the picture shows, in a line: it stands in the picture's own description."""
    return "; ".join(f"{room} > {used}" for room, used in reduced(found))


def draw(found: Rooms) -> None:
    """Write the picture."""
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
    colours = dict(
        zip(
            PACKAGES,
            ("#e9d8a6", "#94d2bd", "#94d2bd", "#94d2bd", "#d9c5e8", "#cfe1f2", "#f6cdb5"),
            strict=True,
        )
    )
    figure, axes = plt.subplots(figsize=(11, 12))
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
                "facecolor": colours[package],
                "edgecolor": "#555555",
            },
        )
    axes.set_xlim(-0.02, 1.05)
    axes.set_ylim(-0.6, max(heights.values()) + 0.6)
    axes.set_axis_off()
    figure.savefig(
        PICTURE, bbox_inches="tight", metadata={"Date": None, "Description": described(found)}
    )
    plt.close(figure)


def main() -> None:
    """Write page and picture anew."""
    found = rooms()
    text = PAGE.read_text("utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}{table(found)}{END}{after}", "utf-8")
    draw(found)


if __name__ == "__main__":
    main()

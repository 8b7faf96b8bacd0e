"""The code blocks of documents."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^```(?P<language>\S+)(?P<mark>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def blocks(path: Path, language: str) -> list[str]:
    """The code blocks of a document, in order, but for those marked `notest`."""
    return [
        block["text"]
        for block in _BLOCK.finditer(path.read_text("utf-8"))
        if block["language"] == language and "notest" not in block["mark"]
    ]

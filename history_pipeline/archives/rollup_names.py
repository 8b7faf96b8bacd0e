"""The names of roll-ups, which tell of which files each was made."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from history_pipeline.archives.manifest import DataFile, digest

_SHOWN = 16
"""Digits of the hash that stand in a name. A roll-up itself vouches for all of it."""


def made_of(files: Iterable[DataFile]) -> str:
    """A hash of what the manifests say of some files."""
    facts = sorted((file.path, file.sha256 or repr(file.fingerprint)) for file in files)
    return digest(json.dumps(facts).encode())


def rollup_name(day: str, files: Sequence[DataFile]) -> str:
    """The name of the roll-up of a day (`2026-01-31`) that has these files."""
    return f"{day}-{made_of(files)[:_SHOWN]}.rollup"


def rollup_names(files: Iterable[DataFile]) -> set[str]:
    """The names that the roll-ups of some files have, day by day."""
    days = defaultdict[str, list[DataFile]](list)
    for file in files:
        days[file.event_date].append(file)
    return {rollup_name(day, of_day) for day, of_day in days.items()}

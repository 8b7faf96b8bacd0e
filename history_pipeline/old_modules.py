"""The former public modules of the pipeline; all of them go with 1.0."""

from __future__ import annotations

import sys
from types import ModuleType

from queue_core.runtime.deprecation import deprecated

NAMES = {
    "archive": ("read_archive",),
    "archiving": ("Archived", "archive_history"),
    "audit": ("audit",),
    "changes": ("Change", "archive_changes"),
    "compaction": ("Compacted", "compact_archive"),
    "content": ("verify_content",),
    "erasure": ("Erased", "erase_archived"),
    "expiry": ("Expired", "expire_archive"),
    "figures": ("Audit", "Period"),
    "lookup": ("find_archived",),
    "replay": ("Replayed", "replay_archive"),
    "report": ("write_figures", "write_page"),
    "rolled_audit": ("rolled_audit",),
    "sources": ("StickybusSource", "read_history"),
    "verification": ("Verified", "checksums", "verify_archive"),
}
"""Each module, and its public names. Those are the package's own now."""


class OldModule(ModuleType):
    """A module that is no file any more: a public name of it warns, and is that of its package."""

    def __getattr__(self, name: str) -> object:
        package, _, module = self.__name__.rpartition(".")
        if name not in NAMES[module]:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        deprecated(f"{self.__name__}.{name}", f"{package}.{name}")
        found: object = getattr(sys.modules[package], name)
        return found


def install(package: str) -> None:
    """Let old imports find the old modules: Python looks there before it looks for files."""
    for module in NAMES:
        name = f"{package}.{module}"
        sys.modules[name] = OldModule(name)

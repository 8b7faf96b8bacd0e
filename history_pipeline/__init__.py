"""History as a Spark DataFrame: read, streamed, archived, analysed, and posted again.

All that is public is imported from here, but for the `errors`. The import needs neither Spark nor
Arrow: what a name needs is loaded when it is first read.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from history_pipeline import old_modules

if TYPE_CHECKING:
    from history_pipeline.archives.archive import read_archive
    from history_pipeline.archives.changes import Change, archive_changes
    from history_pipeline.archives.content import verify_content
    from history_pipeline.archives.lookup import find_archived
    from history_pipeline.archives.verification import Verified, checksums, verify_archive
    from history_pipeline.audits.audit import audit
    from history_pipeline.audits.figures import Audit
    from history_pipeline.period import Period
    from history_pipeline.reports.report import write_figures, write_page
    from history_pipeline.rollups.rolled_audit import rolled_audit
    from history_pipeline.scale import Scale
    from history_pipeline.session import open_session
    from history_pipeline.source.data_source import StickybusSource, read_history
    from history_pipeline.upkeep.archiving import Archived, archive_history
    from history_pipeline.upkeep.compaction import Compacted, compact_archive
    from history_pipeline.upkeep.erasure import Erased, erase_archived
    from history_pipeline.upkeep.expiry import Expired, expire_archive
    from history_pipeline.upkeep.replay import Replayed, replay_archive

__all__ = [
    "Archived",
    "Audit",
    "Change",
    "Compacted",
    "Erased",
    "Expired",
    "Period",
    "Replayed",
    "Scale",
    "StickybusSource",
    "Verified",
    "archive_changes",
    "archive_history",
    "audit",
    "checksums",
    "compact_archive",
    "erase_archived",
    "expire_archive",
    "find_archived",
    "open_session",
    "read_archive",
    "read_history",
    "replay_archive",
    "rolled_audit",
    "verify_archive",
    "verify_content",
    "write_figures",
    "write_page",
]

_MODULES = {
    "archives.archive": ("read_archive",),
    "archives.changes": ("Change", "archive_changes"),
    "archives.content": ("verify_content",),
    "archives.lookup": ("find_archived",),
    "archives.verification": ("Verified", "checksums", "verify_archive"),
    "audits.audit": ("audit",),
    "audits.figures": ("Audit",),
    "period": ("Period",),
    "reports.report": ("write_figures", "write_page"),
    "rollups.rolled_audit": ("rolled_audit",),
    "scale": ("Scale",),
    "session": ("open_session",),
    "source.data_source": ("StickybusSource", "read_history"),
    "upkeep.archiving": ("Archived", "archive_history"),
    "upkeep.compaction": ("Compacted", "compact_archive"),
    "upkeep.erasure": ("Erased", "erase_archived"),
    "upkeep.expiry": ("Expired", "expire_archive"),
    "upkeep.replay": ("Replayed", "replay_archive"),
}


def __dir__() -> list[str]:
    return __all__


# Type checkers read the imports above: to them, a name that is not there is an error.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        if name in old_modules.NAMES:
            return sys.modules[f"{__name__}.{name}"]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


old_modules.install(__name__)

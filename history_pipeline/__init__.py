"""History as a Spark DataFrame: read, streamed, archived, analysed, and posted again.

All that is public is imported from here, but for the `errors`. The import needs neither Spark nor
Arrow: what a name needs is loaded when it is first read.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from history_pipeline import old_modules
from queue_core.runtime.lazy_names import loader

if TYPE_CHECKING:
    from history_pipeline.archives.archive import read_archive
    from history_pipeline.archives.changes import Change, archive_changes
    from history_pipeline.archives.content import verify_content
    from history_pipeline.archives.lookup import find_archived
    from history_pipeline.archives.task_lookup import ArchivedTask, find_archived_tasks
    from history_pipeline.archives.verification import Verified, checksums, verify_archive
    from history_pipeline.audits.audit import audit
    from history_pipeline.audits.figures import Audit
    from history_pipeline.audits.task_figures import TaskAudit
    from history_pipeline.period import Period
    from history_pipeline.reports.report import write_figures, write_page
    from history_pipeline.rollups.rolled_audit import rolled_audit
    from history_pipeline.rollups.rolled_task_audit import rolled_task_audit
    from history_pipeline.scale import Scale
    from history_pipeline.session import open_session
    from history_pipeline.source.data_source import StickybusSource, read_history
    from history_pipeline.upkeep.archiving import Archived, archive_history
    from history_pipeline.upkeep.compaction import Compacted, compact_archive
    from history_pipeline.upkeep.delta_export import Exported, export_delta
    from history_pipeline.upkeep.erasure import Erased, erase_archived
    from history_pipeline.upkeep.expiry import Expired, expire_archive
    from history_pipeline.upkeep.replay import Replayed, replay_archive
    from history_pipeline.upkeep.task_erasure import erase_archived_tasks

__all__ = [
    "Archived",
    "ArchivedTask",
    "Audit",
    "Change",
    "Compacted",
    "Erased",
    "Expired",
    "Exported",
    "Period",
    "Replayed",
    "Scale",
    "StickybusSource",
    "TaskAudit",
    "Verified",
    "archive_changes",
    "archive_history",
    "audit",
    "checksums",
    "compact_archive",
    "erase_archived",
    "erase_archived_tasks",
    "expire_archive",
    "export_delta",
    "find_archived",
    "find_archived_tasks",
    "open_session",
    "read_archive",
    "read_history",
    "replay_archive",
    "rolled_audit",
    "rolled_task_audit",
    "verify_archive",
    "verify_content",
    "write_figures",
    "write_page",
]

_MODULES = {
    "history_pipeline.archives.archive": ("read_archive",),
    "history_pipeline.archives.changes": ("Change", "archive_changes"),
    "history_pipeline.archives.content": ("verify_content",),
    "history_pipeline.archives.lookup": ("find_archived",),
    "history_pipeline.archives.task_lookup": ("ArchivedTask", "find_archived_tasks"),
    "history_pipeline.archives.verification": ("Verified", "checksums", "verify_archive"),
    "history_pipeline.audits.audit": ("audit",),
    "history_pipeline.audits.figures": ("Audit",),
    "history_pipeline.audits.task_figures": ("TaskAudit",),
    "history_pipeline.period": ("Period",),
    "history_pipeline.reports.report": ("write_figures", "write_page"),
    "history_pipeline.rollups.rolled_audit": ("rolled_audit",),
    "history_pipeline.rollups.rolled_task_audit": ("rolled_task_audit",),
    "history_pipeline.scale": ("Scale",),
    "history_pipeline.session": ("open_session",),
    "history_pipeline.source.data_source": ("StickybusSource", "read_history"),
    "history_pipeline.upkeep.archiving": ("Archived", "archive_history"),
    "history_pipeline.upkeep.compaction": ("Compacted", "compact_archive"),
    "history_pipeline.upkeep.delta_export": ("Exported", "export_delta"),
    "history_pipeline.upkeep.erasure": ("Erased", "erase_archived"),
    "history_pipeline.upkeep.expiry": ("Expired", "expire_archive"),
    "history_pipeline.upkeep.replay": ("Replayed", "replay_archive"),
    "history_pipeline.upkeep.task_erasure": ("erase_archived_tasks",),
}


def __dir__() -> list[str]:
    return __all__


# Type checkers read the imports above: to them, a name that is not there is an error.
if not TYPE_CHECKING:
    _load = loader(__name__, _MODULES)

    def __getattr__(name: str) -> object:
        if name in old_modules.NAMES and name not in __all__:
            return sys.modules[f"{__name__}.{name}"]
        return _load(name)


old_modules.install(__name__)

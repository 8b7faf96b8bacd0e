"""The errors of the pipeline, a branch of the tree in `queue_core.errors`.

StickybusError
└── PipelineError
    ├── SparkUnavailableError       the extra or a Java runtime that fits is missing
    ├── ArrowUnavailableError       an extra that works without Spark is missing
    ├── SourceOptionError           an option of the format `stickybus` is missing or can't work
    ├── StreamLossError             entries that a stream still lacks were archived and deleted
    ├── WriteError                  rows can't be posted as events
    │   └── RunConflictError        the run has posted other rows before
    ├── ArchiveError
    │   ├── ArchiveTargetError      the directory is none that Spark can reach
    │   ├── ArchiveNotFoundError    nothing was ever archived there
    │   ├── ArchiveDamagedError     files are missing, or not what their manifest says
    │   ├── ArchiveIncompleteError  the archive lacks parts that are asked for
    │   ├── ArchiveMismatchError    the rows to delete differ from the archived ones
    │   └── ArchiveConflictError    another run is at work, or the archive is another database's
    └── ReplayError                 archived entries can't be posted again
        └── ReplayConditionError    the condition that chooses them can't work
"""

from queue_core.errors import StickybusError


class PipelineError(StickybusError):
    """Base of the pipeline's own errors."""


class SparkUnavailableError(PipelineError):
    """Spark can't be started: the `spark` extra or a Java runtime that fits is missing.

    Nothing was started.
    """


class ArrowUnavailableError(PipelineError):
    """An extra that works without Spark is missing: `archive`, `delta` or `report`.

    Nothing was read.
    """


class SourceOptionError(PipelineError):
    """The option `key` of the format `stickybus` is missing or can't work.

    Nothing was read or written.
    """

    key: str | None = None


class StreamLossError(PipelineError):
    """Entries that a stream has not handed over were archived and deleted, by the run `run`.

    Nothing was handed over.
    """

    run: str | None = None


class WriteError(PipelineError):
    """Rows of a DataFrame can't be posted as events; none was."""


class RunConflictError(WriteError):
    """The run `run` has posted other rows before; none was posted now."""

    run: str | None = None


class ArchiveError(PipelineError):
    """Something is wrong with an archive. `path` is the file or folder that it is about."""

    path: str | None = None


class ArchiveTargetError(ArchiveError):
    """The directory `target` is none that Spark can reach; nothing was read or written."""

    target: str | None = None


class ArchiveNotFoundError(ArchiveError):
    """Nothing was ever archived there."""


class ArchiveDamagedError(ArchiveError):
    """A file of the archive is missing, or holds other rows than its manifest says."""


class ArchiveIncompleteError(ArchiveError):
    """The archive leaves out parts that are asked for; nothing was found or changed."""


class ArchiveMismatchError(ArchiveError):
    """The rows to be deleted from history are not the archived ones; nothing was deleted.

    `run` names the archive's run.
    """

    run: str | None = None
    archived: int | None = None
    found: int | None = None


class ArchiveConflictError(ArchiveError):
    """Another run is at work on the archive or the history, or has to be finished first.

    Or the archive belongs to another database.
    """


class ReplayError(PipelineError):
    """Archived entries can't be posted again.

    `posted` is the number of those that were posted before the error.
    """

    posted: int = 0


class ReplayConditionError(ReplayError):
    """The condition that chooses archived entries can't be read or computed; nothing was posted."""

"""The errors of the pipeline, a branch of the tree in `queue_core.errors`.

StickybusError
└── PipelineError
    ├── SparkUnavailableError   the extra or a Java runtime that fits is missing
    └── SourceOptionError       an option of the format `stickybus` is missing or can't work
"""

from queue_core.errors import StickybusError


class PipelineError(StickybusError):
    """Base of the pipeline's own errors."""


class SparkUnavailableError(PipelineError):
    """Spark can't be started: the `spark` extra or a Java runtime that fits is missing. Nothing was started."""


class SourceOptionError(PipelineError):
    """The option `key` of the format `stickybus` is missing or can't work; nothing was read or written."""

    key: str | None = None

"""The format `stickybus` under the name by which Spark finds it.

Spark 4 imports every top-level module named `pyspark_…`, and registers its `DefaultSource`.
"""

from history_pipeline import StickybusSource as DefaultSource

__all__ = ["DefaultSource"]

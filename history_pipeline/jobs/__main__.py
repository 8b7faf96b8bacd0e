"""Print the folder of the jobs, for the command line of `spark-submit`."""

from __future__ import annotations

from pathlib import Path

if __name__ == "__main__":
    print(Path(__file__).parent)  # noqa: T201 -- it is what the command is for

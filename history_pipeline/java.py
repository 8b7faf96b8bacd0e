"""The Java runtime that Spark would start.

It is looked at before Spark starts: Spark's own errors name no cause.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from history_pipeline.errors import SparkUnavailableError

OLDEST = 17
"""The oldest Java that Spark 4.3 runs on."""

_ANSWER_SECONDS = 30
"""How long `java -version` may take."""
_ADVICE = (
    f"Nothing was started. Install Java {OLDEST} or later (Debian: apt install "
    "default-jre-headless)"
)


def check_java() -> None:
    """Find the program that Spark would start, and its version, as its start script does.

    Raises SparkUnavailableError: there is none, `JAVA_HOME` is wrong, or it is too old.
    """
    program = _program()
    try:
        answer = subprocess.run(  # noqa: S603 -- the program that Spark starts as well
            [program, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkUnavailableError(f"{program} does not run: {error}. {_ADVICE}.") from error
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if found is None:
        raise SparkUnavailableError(f"{program} does not tell its version. {_ADVICE}.")
    if int(found[1]) < OLDEST:
        raise SparkUnavailableError(f"{program} is Java {found[1]}, which is too old. {_ADVICE}.")


def _program() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if not os.access(program, os.X_OK) or not program.is_file():
            raise SparkUnavailableError(
                f"JAVA_HOME={home} holds no Java: {program} is no program. Nothing was started. "
                f"Set JAVA_HOME to a Java {OLDEST} or later, or unset it to use the one on PATH."
            )
        return str(program)
    found = shutil.which("java")
    if found is None:
        raise SparkUnavailableError(
            f"there is no java on PATH, and JAVA_HOME is not set. {_ADVICE}."
        )
    return found

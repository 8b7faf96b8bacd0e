"""The questions about an SQLite file, most of them from outside.

A connection that Stickybus opens would change the file's journal.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL

from sql.doctor.base import Doctor, Fault, Step
from sql.doctor.finding import Finding, Severity, unchecked
from sql.sqlite.file import real_path

WAL_BYTES = 128 * 1024**2
"""Twice the bytes that our connections leave of it after a checkpoint (`journal_size_limit`)."""
FREE_BYTES = 256 * 1024**2
"""The room on the disk below which a checkpoint or an upgrade may fail."""
BUSY_SECONDS = 1.0
"""Seconds that a question waits for a lock of the file."""
MOUNTS = Path("/proc/mounts")
NETWORKED = frozenset(
    {
        *(
            "9p",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "fuse.ceph",
            "fuse.glusterfs",
            "fuse.s3fs",
            "fuse.sshfs",
        ),
        *(
            "gfs2",
            "glusterfs",
            "gpfs",
            "lustre",
            "ncpfs",
            "nfs",
            "nfs4",
            "ocfs2",
            "smb3",
            "smbfs",
            "vboxsf",
        ),
        *("virtiofs", "vmhgfs"),
    }
)
"""File systems behind which another kernel may have the same file open.

They are named as in `/proc/mounts`.
"""


class SQLiteDoctor(Doctor):
    """Asks about an SQLite file."""

    explain = "EXPLAIN QUERY PLAN "

    def outside(self, url: URL, *, integrity: bool) -> Iterator[Finding]:
        """See `Doctor`."""
        path = _file(url)
        if not path.exists():
            return
        yield from _network(path)
        yield from _disk(path)
        yield from _wal(path)
        try:
            with closing(_opened(path)) as file:
                yield from _journal(file, path)
                if integrity:
                    yield from _integrity(file, path)
        except sqlite3.Error as error:
            yield unchecked("journal-mode", path.name, f"the file could not be read: {error}")

    def faults(self, plan: Sequence[Mapping[str, Any]], table: str) -> Iterator[Fault]:
        """See `Doctor`."""
        for row in plan:
            detail = str(row["detail"])
            words = detail.split()
            if words[:2] == ["SCAN", table]:
                yield Fault(Step.WALK if "INDEX" in words else Step.SCAN, detail)
            elif "TEMP B-TREE" in detail:
                yield Fault(Step.SORT, detail)


def _file(url: URL) -> Path:
    return Path(real_path(url))


def _opened(path: Path) -> sqlite3.Connection:
    """The file as it is: one of our connections would switch its journal."""
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_SECONDS)


def _network(path: Path) -> Iterator[Finding]:
    try:
        kind = _file_system(path, MOUNTS.read_text("utf-8"))
    except OSError:
        yield unchecked("network-file-system", path.name, f"{MOUNTS} can't be read here")
        return
    if kind in NETWORKED:
        yield Finding(
            "network-file-system",
            Severity.DANGER,
            path.name,
            f"the file lies on {kind}: SQLite's WAL needs memory shared by all its processes, and "
            "working locks. Such file systems get these wrong, and have corrupted files.",
            "Move the file to a local disk, or use PostgreSQL or MariaDB",
        )


def _file_system(path: Path, mounts: str) -> str | None:
    """The kind of the file system that `path` lies on.

    It is that of the deepest mount; of several at one place, of the last.
    """
    kinds = {}
    for line in mounts.splitlines():
        _, where, kind, *_ = line.split()
        kinds[where.replace("\\040", " ")] = kind
    return next((kinds[str(above)] for above in (path, *path.parents) if str(above) in kinds), None)


def _disk(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path.parent).free
    if free < FREE_BYTES:
        yield Finding(
            "free-disk",
            Severity.DANGER,
            path.name,
            f"its disk has {_megabytes(free)} left. On a full disk, posts fail and outcomes can't "
            "be recorded.",
            "Free space, or run: stickybus history truncate --before 30d",
        )


def _wal(path: Path) -> Iterator[Finding]:
    wal = path.with_name(f"{path.name}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    if size > WAL_BYTES:
        yield Finding(
            "wal-size",
            Severity.SLOW,
            wal.name,
            f"the write-ahead log has {_megabytes(size)}: a reader that never ends keeps it from "
            "being emptied, and every read looks through it.",
            "End transactions that stay open (also of other programs); then: PRAGMA "
            "wal_checkpoint(TRUNCATE)",
        )


def _journal(file: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    (mode,) = file.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        yield Finding(
            "journal-mode",
            Severity.SLOW,
            path.name,
            f"its journal mode is {mode}: readers and writers wait for each other. Nodes switch it "
            "to WAL when they open the file, which fails while another program reads it.",
            "PRAGMA journal_mode = WAL",
        )


def _integrity(file: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    try:
        (answer,) = file.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        answer = str(error)
    if answer != "ok":
        yield Finding(
            "integrity",
            Severity.DANGER,
            path.name,
            f"the file is damaged: {' '.join(str(answer).split())}.",
            f"Stop its nodes, copy the file away, and save the readable rows: sqlite3 {path.name}"
            f' ".recover" | sqlite3 saved-{path.name}',
        )


def _megabytes(size: int) -> str:
    return f"{size / 1024**2:,.0f} MB"

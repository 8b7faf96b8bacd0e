"""Bundles of manifests: copies of many in one file, so that a lookup needs few requests.

    DIR/bus_events/manifests/00000064.bundle

A bundle holds the bytes of the manifests up to its number. Nothing depends on it: it may be deleted
at any time, a run makes it anew, and one that does not fit is passed over. What it holds is proven
as files of manifests are: each manifest names the SHA-256 of the one before it, and the newest is
always read from its own file.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec

from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.manifest import Manifest, manifest_numbers, manifest_path, numbers_of
from history_pipeline.archives.storage import ReadableStorage, Storage
from history_pipeline.errors import ArchiveDamagedError

SIZE = 64
"""Manifests of a bundle. Of thousands, about as many bundles are read as single files."""
_SUFFIX = ".bundle"


def bundled_manifests(log: ArchiveLog[ReadableStorage]) -> list[Manifest]:
    """All manifests, in order, as `ArchiveLog.open` finds them, by fewer requests.

    Raises as that does. Of a manifest in a bundle, its own file must be there, and is not read.
    """
    log.check_begun()
    names = log.storage.names("manifests")
    numbers = manifest_numbers(names)
    before = set(numbers[:-1])
    bundles = [last for last in numbers_of(names, _SUFFIX) if before.issuperset(_span(last))]
    if not bundles:
        return log.manifests()
    try:
        return _proven(log, numbers, bundles)
    except (ArchiveDamagedError, OSError, ValueError, zlib.error, msgspec.MsgspecError) as error:
        # The files tell what is really wrong, if anything is.
        from queue_core.runtime.log import get_logger  # which lookups need only here

        get_logger(__name__).warning(
            "bundle_passed_over", path=f"{log.where}/manifests", error=str(error)
        )
        return log.manifests()


def write_bundles(log: ArchiveLog[Storage], manifests: Sequence[Manifest]) -> None:
    """Write the bundles that are missing, of all `manifests`, whose files were compared just now.

    Their bytes depend on nothing else: two runs that write one at once write the same.
    """
    lasts = range(SIZE, len(manifests), SIZE)
    there = numbers_of(log.storage.names("manifests"), _SUFFIX) if lasts else ()
    for last in lasts:
        if last not in there and last - SIZE + 1 >= _unproven(manifests):
            contents = log.storage.read_all([manifest_path(number) for number in _span(last)])
            packed = zlib.compress(msgspec.msgpack.encode(contents))
            log.storage.put(_bundle_path(last), packed)


def _proven(
    log: ArchiveLog[ReadableStorage], numbers: Sequence[int], bundles: Sequence[int]
) -> list[Manifest]:
    """All manifests, by some bundles. Raises an error if these are not what the files must be."""
    spans = [_span(last) for last in bundles]
    inside = {number for span in spans for number in span}
    unbundled = [number for number in numbers if number not in inside]
    read = log.storage.read_all([*map(_bundle_path, bundles), *map(manifest_path, unbundled)])
    contents = dict(zip(unbundled, read[len(bundles) :], strict=True))
    for span, packed in zip(spans, read, strict=False):
        unpacked = msgspec.msgpack.decode(zlib.decompress(packed), type=list[bytes])
        contents |= dict(zip(span, unpacked, strict=True))
    manifests = log.checked(contents)
    if min(inside) < _unproven(manifests):
        raise ValueError("no manifest vouches for those of the first bundle")
    return manifests


def _unproven(manifests: Sequence[Manifest]) -> int:
    """The number of the last manifest that does not name the one before it.

    For those below it, nothing vouches but their own files.
    """
    return max(one.number for one in manifests if one.previous_sha256 is None)


def _bundle_path(last: int) -> str:
    return f"manifests/{last:08}{_SUFFIX}"


def _span(last: int) -> range:
    """The numbers of the manifests in the bundle of a number."""
    return range(last - SIZE + 1, last + 1)

"""Column types that mean the same on every database."""

from sql.types.date_functions import microseconds_between, utc_now
from sql.types.dates import TEXT_LENGTH, UtcDateTime, UtcSince
from sql.types.readable import DATE_GLOB, SECONDS_GLOB, readable, readable_or_now
from sql.types.texts import Utf8, as_utf8, name
from sql.types.wide import long_bytes, long_text, record_id

__all__ = [
    "DATE_GLOB",
    "SECONDS_GLOB",
    "TEXT_LENGTH",
    "UtcDateTime",
    "UtcSince",
    "Utf8",
    "as_utf8",
    "long_bytes",
    "long_text",
    "microseconds_between",
    "name",
    "readable",
    "readable_or_now",
    "record_id",
    "utc_now",
]

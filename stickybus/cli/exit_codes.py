"""The exit codes of commands."""

DONE, BAD_DATA, USAGE, DATABASE, INTERRUPTED = 0, 1, 2, 3, 130

"""Answers of many lines, each of which is a JSON object: `{"result": ...}`, or `{"error": ...}`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from work_queue.service.http import answers
from work_queue.service.http.refusals import refused
from work_queue.task import Task

LINES_TYPE = "application/x-ndjson"


async def lines(
    first: Sequence[Task], pages: AsyncGenerator[list[Task], None], protocol: int
) -> AsyncGenerator[bytes, None]:
    """A line for each task of a first page and of those that follow; the last may be an error."""
    async with aclosing(pages):
        try:
            yield _of(first)
            async for page in pages:
                yield _of(page)
        except Exception as error:  # noqa: BLE001 -- the status has been sent
            yield b'{"error":%b}\n' % bytes(refused(error, protocol).body)


def _of(tasks: Sequence[Task]) -> bytes:
    return msgspec.json.Encoder().encode_lines(
        {"result": {"tasks": [answers.task(task)]}} for task in tasks
    )

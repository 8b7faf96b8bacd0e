"""A handler that sends values to a URL. It needs httpx, from the extra `client`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from queue_core.errors import (
    ConfigurationError,
    PayloadNotDecodableError,
    PayloadNotSerialisableError,
    PayloadTooLargeError,
)
from queue_core.model.retry import GiveUp, RetryLater
from work_queue.modification import Insert
from work_queue.values import decode, encode
from work_queue.work_queue import MAX_VALUE_BYTES
from work_queue.workers.job import Job

if TYPE_CHECKING:
    import httpx

TOO_EARLY_OR_MANY = frozenset({408, 425, 429})
"""What a client may repeat, of the answers that say that it is at fault."""
LONGEST_WAIT_SECONDS = 86_400
"""For which a receiver can put a task off."""
LONGEST_ANSWER_BYTES = MAX_VALUE_BYTES
"""Of an answer that is to be a task: the longest value that a work queue takes by default."""
KEPT_BYTES = 65_536
"""Of an answer that nobody wants. After a longer one, the connection is opened anew."""


def post_to(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 30.0,
    results: str | None = None,
) -> Callable[[Job], Insert | None]:
    """Make a handler that posts the value of a task to a URL.

    A JSON value goes as JSON, bytes as they are; `Idempotency-Key` is the task's id, so that a
    receiver knows a repetition. An answer of 2xx ends the task. One of 5xx, of 408, 425 or 429,
    and no answer, is retried, after `Retry-After` if that is a number. Any other gives it up, and
    so does an answer for `results` that would be a value of more than 10,000,000 bytes. Without
    `results`, 2xx is enough, whatever becomes of the rest of the answer.

    Args:
        url: The receiver.
        headers: Sent with each request.
        timeout_seconds: How many seconds connecting, sending and waiting for each part of the
            answer may take. If its body has not ended after that time, its next part is the last
            one that is waited for. Default: 30.
        results: Where answers go, as new tasks: JSON as a value, anything else, also what is
            called JSON and is none, as a text. Default: nowhere.

    Returns:
        A handler for `Worker`.

    Raises:
        ConfigurationError: httpx is not installed.
    """
    try:
        import httpx
    except ImportError as error:
        raise ConfigurationError("post_to needs httpx: pip install 'stickybus[client]'.") from error
    client = httpx.Client(timeout=timeout_seconds, headers=dict(headers or {}))

    def handler(job: Job) -> Insert | None:
        value, sent = job.task.value, {"Idempotency-Key": job.task.id}
        if results is not None:
            sent["Accept-Encoding"] = "identity"  # so that what is read is what counts
        content = {"content": value} if isinstance(value, bytes) else {"json": value}
        with client.stream("POST", url, headers=sent, **content) as answer:
            if results is None or not answer.is_success:
                with suppress(httpx.RequestError, TimeoutError):
                    _read(answer, answer.iter_raw(), KEPT_BYTES, timeout_seconds)
                _judge(answer)
                return None
            body = _read(answer, answer.iter_bytes(), LONGEST_ANSWER_BYTES, timeout_seconds)
        with suppress(PayloadTooLargeError):
            if body is not None:
                return Insert(queue=results, value=_result(answer, body))
        raise GiveUp(
            f"{url} answered {answer.status_code} with more than a task can hold, which is "
            f"{LONGEST_ANSWER_BYTES} bytes. The receiver has acted on the task"
        )

    return handler


def _judge(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    what = f"{answer.url} answered {answer.status_code} {answer.reason_phrase}"
    if not answer.is_server_error and answer.status_code not in TOO_EARLY_OR_MANY:
        raise GiveUp(what)
    if (wait := answer.headers.get("Retry-After", "")).isdecimal():
        raise RetryLater(min(int(wait), LONGEST_WAIT_SECONDS), what)
    raise ConnectionError(what)


def _read(
    answer: httpx.Response, parts: Iterator[bytes], most_bytes: int, seconds: float
) -> bytes | None:
    """The parts of a body, or None for longer ones. Raises TimeoutError if they take longer."""
    body, end = bytearray(), time.monotonic() + seconds
    for part in parts:
        body += part
        if len(body) > most_bytes:
            return None
        if time.monotonic() > end:
            raise TimeoutError(f"{answer.url} answered for more than {seconds:g} seconds")
    return bytes(body)


def _result(answer: httpx.Response, body: bytes) -> object:
    """The answer's JSON if a task can hold it, else its text.

    Raises PayloadTooLargeError, and nothing else: the receiver has acted, and would do so again.
    """
    text = _text(answer, body)
    if answer.headers.get("Content-Type", "").startswith("application/json"):
        with suppress(PayloadNotDecodableError, PayloadNotSerialisableError):
            value: object = decode(text, None)
            encode(value, LONGEST_ANSWER_BYTES, what="the answer")
            return value
    encode(text, LONGEST_ANSWER_BYTES, what="the answer")
    return text


def _text(answer: httpx.Response, body: bytes) -> str:
    """The body in the character set that its head names, if that makes a text of it."""
    with suppress(LookupError, UnicodeError):
        text = body.decode(answer.encoding or "utf-8")
        text.encode()
        return text
    return body.decode(errors="replace")

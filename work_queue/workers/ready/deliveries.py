"""A handler that sends values to a URL. It needs httpx, from the extra `client`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from queue_core.errors import (
    ConfigurationError,
    PayloadNotDecodableError,
    PayloadNotSerialisableError,
)
from queue_core.model.retry import GiveUp, RetryLater
from work_queue.modification import Insert
from work_queue.values import decode
from work_queue.workers.job import Job
from work_queue.workers.ready import results as ready

if TYPE_CHECKING:
    import httpx

TOO_EARLY_OR_MANY = frozenset({408, 425, 429})
"""What a client may repeat, of the answers that say that it is at fault."""
LONGEST_WAIT_SECONDS = 86_400
"""For which a receiver can put a task off."""
KEPT_BYTES = 65_536
"""Of an answer that nobody wants. After a longer one, the connection is opened anew."""
SAFE = "".join(map(chr, range(ord("!"), ord("~") + 1))).replace("%", "")
"""The visible characters of ASCII, which a header may hold; a percent sign stands for others."""


def post_to(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 30.0,
    results: str | None = None,
) -> Callable[[Job], Insert | None]:
    """Make a handler that posts the value of a task to a URL.

    A JSON value goes as JSON, also `null`, and bytes as they are. `Idempotency-Key` is the task's
    id, so that a receiver knows a repetition. What is not visible ASCII in it, and `%`, goes
    percent-encoded. An answer of 2xx ends the task. One of 5xx, of 408, 425 or 429,
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
        sent = {"Idempotency-Key": quote(job.task.id, safe=SAFE)}
        content = job.task.value
        if not isinstance(content, bytes):
            content = msgspec.json.encode(content)
            sent["Content-Type"] = client.headers.get("Content-Type", "application/json")
        if results is not None:
            sent["Accept-Encoding"] = "identity"  # so that what is read is what counts
        with client.stream("POST", url, headers=sent, content=content) as answer:
            if results is None or not answer.is_success:
                with suppress(httpx.RequestError, TimeoutError):
                    _read(answer, answer.iter_raw(), KEPT_BYTES, timeout_seconds)
                _judge(answer)
                return None
            body = _read(answer, answer.iter_bytes(), ready.LONGEST_BYTES, timeout_seconds)
        return _result(results, answer, body)

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


def _result(queue: str, answer: httpx.Response, body: bytes | None) -> Insert:
    """The answer's JSON if a task can hold it, else its text.

    Raises GiveUp, and nothing else: the receiver has acted, and would do so again.
    """
    said, actor = f"{answer.url} answered {answer.status_code} with", "The receiver"
    if body is None:
        raise ready.too_long(said, actor)
    text = _text(answer, body)
    if answer.headers.get("Content-Type", "").startswith("application/json"):
        with suppress(PayloadNotDecodableError, PayloadNotSerialisableError):
            return ready.result(queue, decode(text, None), said=said, actor=actor)
    return ready.result(queue, text, said=said, actor=actor)


def _text(answer: httpx.Response, body: bytes) -> str:
    """The body in the character set that its head names, if that makes a text of it."""
    with suppress(LookupError, UnicodeError):
        text = body.decode(answer.encoding or "utf-8")
        text.encode()
        return text
    return body.decode(errors="replace")

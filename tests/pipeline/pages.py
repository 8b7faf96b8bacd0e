"""Pages of reports, read as a browser would, and names that may not be read so."""

from __future__ import annotations

from html.parser import HTMLParser

from history_pipeline import Audit
from tests.pipeline.audits import audit_of
from tests.pipeline.sample import ended

HOSTILE = (
    "<script>document.title='owned'</script>",
    "</style></svg><img src=x onerror=alert(1)>",
    "$\\frac{$",
    "{{ 7 * 7 }}{% raw %}",
    '" onload="x',
    "日本語 🚚",
    "a\nb\r\tc",
    "x" * 129,
)


class Page(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def hostile() -> Audit:
    rows = [
        ended(
            number,
            ("PROCESSED", "FAILED")[number % 2],
            queue_name=name,
            class_name=name,
            processing_owner=name,
            last_error=f"{name.partition(':')[0]}: told",
            error_count=number,
        )
        for number, name in enumerate(HOSTILE + HOSTILE, start=1)
    ]
    return audit_of(rows)

"""The page in a real browser.

It is drawn, in light and dark, runs nothing and asks nobody for anything.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import axe_core_python
import numpy as np
import pytest
from matplotlib.image import imread
from numpy.typing import NDArray

from history_pipeline import Audit, write_page
from history_pipeline.reports.page import render
from history_pipeline.reports.task_page import render_tasks
from tests.pipeline.audits import audit_of, random_audit
from tests.pipeline.pages import HOSTILE, Page, hostile
from tests.pipeline.tasks import random_tasks, task_audit_of

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--hide-scrollbars",
    ),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # It still asks its maker for updates; no test needs an answer.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
BROWSERS_OWN = "not an origin"
"""Whom the network log names for what no page has asked for."""

Browse = Callable[..., str]


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Opens a page with some more flags and returns what the browser printed."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert program is not None, "install Chromium (scripts/setup.sh servers)"

    def open_page(url: str, *flags: str) -> str:
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        command = [program, *FLAGS, profile, *flags, url]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=200
        ).stdout

    return open_page


def pixels(browse: Browse, page: Path, *, dark: bool = False) -> NDArray[np.uint8]:
    """A screenshot: rows of columns of red, green and blue."""
    picture, scheme = (
        page.with_suffix(".png"),
        f"--blink-settings=preferredColorScheme={int(not dark)}",
    )
    browse(page.as_uri(), scheme, "--window-size=1200,2000", f"--screenshot={picture}")
    seen: NDArray[np.uint8] = (imread(picture)[:, :, :3] * 255).round().astype(np.uint8)
    return seen


def where(seen: NDArray[np.uint8], colour: str) -> NDArray[np.bool_]:
    """Which pixels are of a colour of the style sheet, such as `#2a7fa8`."""
    wanted = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)])
    found: NDArray[np.bool_] = (np.abs(seen.astype(int) - wanted) <= 2).all(axis=2)
    return found


@pytest.mark.parametrize(
    ("dark", "colours"),
    [(False, ("#f6f7f9", "#2a7fa8", "#c8442f")), (True, ("#14181e", "#4ba3cf", "#ee7460"))],
    ids=["light", "dark"],
)
def test_the_plots_are_drawn_in_the_colours_of_the_reader(
    browse: Browse, tmp_path: Path, *, dark: bool, colours: tuple[str, str, str]
) -> None:
    page = tmp_path / "report.html"
    write_page(random_audit(8, 2_000), page)
    seen = pixels(browse, page, dark=dark)
    behind, *of_plots = colours
    assert where(seen, behind).mean() > 0.05
    for colour in of_plots:
        drawn = where(seen, colour)
        assert drawn.sum() > 2_000
        # Across the page and down it: not a stripe of one plot that has no size.
        assert np.ptp(np.nonzero(drawn.any(axis=0))[0]) > 700
        assert np.ptp(np.nonzero(drawn.any(axis=1))[0]) > 700


FRAME = """<!doctype html><link rel="icon" href="data:,"><pre></pre>
<iframe width="{width}" height="900" src="seen.html"></iframe><script>{script}
document.querySelector("iframe").onload = async (loaded) => {{
  const found = await faultsOf(loaded.target.contentDocument);
  document.querySelector("pre").textContent = JSON.stringify(found);
}};
</script>"""
OURS = Path(__file__).with_name("accessibility.js").read_text(encoding="utf-8")
AXE = """async function faultsOf(page) {
  await new Promise((loaded) => {
    const script = page.createElement("script");
    script.onload = loaded;
    script.src = "axe.js";
    page.head.append(script);
  });
  const { violations } = await page.defaultView.axe.run(page);
  return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes[0].html}`);
}"""
"""The rules of axe-core, from Deque Systems."""


def faults_of(
    browse: Browse, folder: Path, html: str, *, dark: bool, width: int, script: str = OURS
) -> list[str]:
    """The faults of a page that is `width` pixels wide, a sentence each."""
    (folder / "seen.html").write_text(html, encoding="utf-8")
    axe = Path(axe_core_python.__file__).with_name("axe.min.js")
    shutil.copy(axe, folder / "axe.js")
    frame = FRAME.format(width=width, script=script)
    (folder / "frame.html").write_text(frame, encoding="utf-8")
    scheme = f"--blink-settings=preferredColorScheme={int(not dark)}"
    with served(folder) as origin:
        dom = browse(f"{origin}/frame.html", scheme, "--virtual-time-budget=20000", "--dump-dom")
    told = re.search(r"<pre>(\[.*\])</pre>", dom, re.DOTALL)
    assert told is not None, dom[:500]
    found: list[str] = json.loads(unescape(told[1]))
    return found


@pytest.mark.parametrize("width", [320, 768, 1200])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(
    "audit", [audit_of([]), hostile(), random_audit(8, 2_000)], ids=["empty", "hostile", "random"]
)
def test_nothing_keeps_anybody_from_reading_the_page(
    browse: Browse, tmp_path: Path, audit: Audit, *, dark: bool, width: int
) -> None:
    """Its language, headings, tables, plots in words, contrast, keys, and columns that are cut."""
    assert faults_of(browse, tmp_path, render(audit), dark=dark, width=width) == []


@pytest.mark.parametrize("width", [320, 1200])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("count", [0, 300])
def test_nothing_keeps_anybody_from_reading_the_page_on_tasks(
    browse: Browse, tmp_path: Path, count: int, *, dark: bool, width: int
) -> None:
    html = render_tasks(task_audit_of(random_tasks(count)))
    assert faults_of(browse, tmp_path, html, dark=dark, width=width) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("audit", [hostile(), random_audit(8, 2_000)], ids=["hostile", "random"])
def test_axe_finds_no_fault_either(
    browse: Browse, tmp_path: Path, audit: Audit, *, dark: bool
) -> None:
    html, policies = re.subn("<meta http-equiv=[^>]*>", "", render(audit))
    assert policies == 1, "it lets no script in"
    see = partial(faults_of, browse, tmp_path, dark=dark, width=1200, script=AXE)
    assert see(html) == []
    [found] = see(html.replace(' lang="en"', ""))
    assert found.startswith("html-has-lang")


@pytest.mark.parametrize(
    ("kept", "broken", "fault"),
    [
        ('lang="en"', "", "the page has no language"),
        ("<h1>", "<h3>", "the page has not one heading of level 1"),
        ('<th scope="row" class="name">all</th>', "<td>all</td>", "a row has no header"),
        (re.compile("<caption>.*?</caption>", re.DOTALL), "", "a table has no caption"),
        ('id="late-title"', 'id="starts-title"', "two elements have the id starts-title"),
        ('tabindex="0"', "", "no key scrolls it"),
        ("position: relative; ", "", "the page itself scrolls sideways"),
        ('role="img"', "", "a plot is not told in words"),
        ("--muted: #5b6675", "--muted: #9aa3ae", "a text hardly differs from what is behind it"),
        ("--reaped: #b07a10", "--reaped: #dfa32e", "the colour of reaped hardly differs"),
        ("min-width: 120px", "min-width: 520px", "its columns are cut"),
    ],
)
def test_each_such_fault_would_be_seen(
    browse: Browse, tmp_path: Path, kept: str | re.Pattern[str], broken: str, fault: str
) -> None:
    html = render(random_audit(8, 500))
    changed = re.sub(kept if isinstance(kept, re.Pattern) else re.escape(kept), broken, html)
    assert changed != html
    width = 320 if "sideways" in fault or "key" in fault else 1200
    told = faults_of(browse, tmp_path, changed, dark=False, width=width)
    assert any(one.startswith(fault) for one in told)


def test_an_empty_history_is_shown_as_a_page_with_text(browse: Browse, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_page(audit_of([]), page)
    assert "Nothing has been posted yet." in Page(browse(page.as_uri(), "--dump-dom")).text
    dark_text = where(pixels(browse, page), "#1c2430")
    assert 200 < dark_text.sum() < 100_000


def test_no_name_runs_or_becomes_an_element(browse: Browse, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_page(hostile(), page)
    seen = Page(browse(page.as_uri(), "--dump-dom"))
    assert seen.tags.count("title") == 1
    assert "Stickybus report, 2026-03-02 09:30:00 UTC" in seen.text
    assert not {"script", "img", "iframe"} & set(seen.tags)
    for name in HOSTILE:
        assert " ".join(name.split()) in seen.text


def test_a_print_has_the_plots_side_by_side_on_few_sheets(browse: Browse, tmp_path: Path) -> None:
    page, printed = tmp_path / "report.html", tmp_path / "report.pdf"
    write_page(random_audit(8, 2_000), page)
    browse(page.as_uri(), "--no-pdf-header-footer", f"--print-to-pdf={printed}")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) <= 5


def test_the_page_asks_nobody_for_anything(browse: Browse, tmp_path: Path) -> None:
    write_page(random_audit(9, 300), tmp_path / "report.html")
    # Without an icon of its own a page is asked for one, by some starts of the browser.
    icon = '<link rel="icon" href="data:,">'
    (tmp_path / "other.html").write_text(
        f'{icon}<img src="asked.png"><img src="http://nobody.invalid/asked.png">'
    )
    with served(tmp_path) as origin:

        def asked_by(page: str) -> set[str]:
            log = tmp_path / f"{page}.json"
            assert "<html" in browse(f"{origin}/{page}", "--dump-dom", f"--log-net-log={log}")
            facts = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
            return {
                one["url"] for one in facts if one.get("initiator", BROWSERS_OWN) != BROWSERS_OWN
            }

        assert asked_by("other.html") == {f"{origin}/asked.png", "http://nobody.invalid/asked.png"}
        assert asked_by("report.html") == set()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder on a free port of this machine; its origin."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Requests are told by the browser."""

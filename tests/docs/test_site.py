"""The documentation's site builds offline, without a warning, and lists every public name."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import history_pipeline
import stickybus

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference" / "api.md"
# Elements that a browser loads by itself, from another host.
_FOREIGN = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=\W?(?:https?:)?//|<link[^>]*\shref=\W?(?:https?:)?//"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder),
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def site_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "scripts" / "site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_has_an_entry_in_the_reference(site: Path) -> None:
    named = re.findall(r"^::: stickybus\.(\w+)$", REFERENCE.read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted([*stickybus.__all__, "task_handlers", "testing"])
    page = (site / "reference" / "api.html").read_text("utf-8")
    assert [name for name in named if f'id="stickybus.{name}"' not in page] == []


def test_every_public_name_of_the_pipeline_has_an_entry_in_the_reference(site: Path) -> None:
    text = REFERENCE.read_text("utf-8")
    named = re.findall(r"^::: history_pipeline\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(history_pipeline.__all__)
    page = (site / "reference" / "api.html").read_text("utf-8")
    assert [name for name in named if f'id="history_pipeline.{name}"' not in page] == []


def test_methods_that_a_public_class_inherits_are_listed(site: Path) -> None:
    page = (site / "reference" / "api.html").read_text("utf-8")
    for method in (
        "PersistentBus.post",
        "PersistentBus.start",
        "PersistentBus.find",
        "NotificationQueue.schedule",
    ):
        assert f'id="stickybus.{method}"' in page


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))
    assert [str(page) for page in pages if _FOREIGN.search(page.read_text("utf-8"))] == []
    # The theme would fetch the program that draws such a diagram.
    assert [str(page) for page in pages if "mermaid" in page.read_text("utf-8")] == []


@pytest.mark.parametrize(
    ("page", "written", "shown"),
    [
        ("index.md", "[t](docs/tutorial.md#a)", "[t](tutorial.md#a)"),
        ("how-to/deploy.md", "[r](../../README.md)", "[r](../index.md)"),
        ("how-to/deploy.md", "[d](doctor.md)", "[d](doctor.md)"),
        (
            "tutorial.md",
            "[the worker](../examples/webhooks.py)",
            "the worker (`examples/webhooks.py`)",
        ),
        (
            "tutorial.md",
            "[`examples/webhooks.py`](../examples/webhooks.py)",
            "`examples/webhooks.py`",
        ),
        ("index.md", "[decisions](docs/adr)", "decisions"),
        ("tutorial.md", "[x](nowhere.md)", "[x](nowhere.md)"),
        ("tutorial.md", "`[t](../README.md)`", "`[t](../README.md)`"),
        ("tutorial.md", "[h](https://example.org/a)", "[h](https://example.org/a)"),
        ("tutorial.md", "```python notest\n", "```python\n"),
        (
            "tutorial.md",
            "```mermaid\nstateDiagram-v2\n    [*] --> READY: post\n    READY --> [*]\n```",
            "| from | to | by |\n|---|---|---|\n|  | READY | post |\n| READY |  |  |",
        ),
    ],
)
def test_links_for_the_code_host_lead_somewhere_on_the_site(
    site_pages: ModuleType, page: str, written: str, shown: str
) -> None:
    assert site_pages.translated(written, page) == shown

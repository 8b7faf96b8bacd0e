"""Hooks of the documentation's site (`mkdocs.yml`) for pages and links outside `docs`.

The links of all documents are written for the code host, where they lead from file to file. The
site holds `docs`, the files in `PAGES`, and pictures of the benchmarks. A link to any other file is
shown as its text and the file's path. A link to a folder of `docs` is shown as its text, for the
site's navigation lists the pages of the folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# Files of the repository that are pages of the site, by their path in it.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
PICTURES = "benchmarks/results"
_SOURCES = {page: source for source, page in PAGES.items()}
# The code host draws state diagrams. The program that would draw them here comes from another host.
_DIAGRAM = re.compile(
    r"^```mermaid\nstateDiagram-v2\n(?P<arrows>.*?)^```$", re.MULTILINE | re.DOTALL
)
_ARROW = re.compile(r"^ *(?P<before>\S+) --> (?P<after>[^\s:]+)(?:: (?P<cause>.*))?$", re.MULTILINE)
# A mark for the tests of the documents, which Markdown's code blocks do not know.
_MARK = re.compile(r"(?<=^```)(\w+) notest$", re.MULTILINE)
# Links in inline code and in code blocks are text.
_CODE_OR_LINK = re.compile(
    r"(?P<code>```.*?```|`[^`\n]*`)|\[(?P<text>[^\[\]]+)\]\((?P<target>[^()\s]+)\)", re.DOTALL
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in `docs`, and the pictures."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    for picture in sorted((ROOT / PICTURES).glob("*-full-*.png")):
        site_path = f"{PICTURES}/{picture.name}"
        files.append(File.generated(config, site_path, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Make each relative link lead to a page of the site, or show the path of its file."""
    return translated(markdown, page.file.src_uri)


def translated(markdown: str, page: str) -> str:
    """Return a page's text with its links and diagrams as the site needs them.

    Args:
        markdown: The text, with links as the code host follows them.
        page: The page's path in the site, such as `how-to/deploy.md`.
    """
    folder = dirname(_SOURCES.get(page, f"docs/{page}"))

    def link(match: re.Match[str]) -> str:
        target = match["target"]
        if match["code"] or target.startswith("#") or ":" in target:
            return match[0]
        path, hash_mark, anchor = target.partition("#")
        named = normpath(join(folder, path))
        if not (ROOT / named).exists():
            return match[0]
        if not (named in PAGES or named.startswith("docs/") or _is_picture(named)):
            return _as_text(match["text"], named)
        if (ROOT / named).is_dir():
            return match["text"]
        site_path = PAGES.get(named, named.removeprefix("docs/"))
        return f"[{match['text']}]({relpath(site_path, dirname(page))}{hash_mark}{anchor})"

    return _CODE_OR_LINK.sub(link, _MARK.sub(r"\1", _DIAGRAM.sub(_as_table, markdown)))


def _is_picture(path: str) -> bool:
    return path.startswith(PICTURES) and path.endswith(".png")


def _as_table(diagram: re.Match[str]) -> str:
    """Return the arrows of a state diagram as a table; `[*]` is the world outside."""
    rows = [
        f"| {arrow['before']} | {arrow['after']} | {arrow['cause'] or ''} |".replace("[*]", "")
        for arrow in _ARROW.finditer(diagram["arrows"])
    ]
    return "\n".join(["| from | to | by |", "|---|---|---|", *rows])


def _as_text(text: str, path: str) -> str:
    return text if path in text else f"{text} (`{path}`)"

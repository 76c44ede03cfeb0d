"""The pages and the menu of the site, for MkDocs: `make site` runs this, and fails on a warning or a broken link.

The pages stay as they are in the source tree, so their links are the same on the site and in the repository. What the
site adds is made here: the menu and `llms.txt` out of `docs/README.md`, and the notebooks with their results and plots.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbconvert import MarkdownExporter
from nbconvert.writers.files import FilesWriter

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PAGES = BUILD / "pages"
INDEX = "docs/README.md"
COPIED = ("*.md", "docs/*.md", "docs/*.css", "docs/images/*", "benchmarks/*.md", "benchmarks/*.svg")

_SECTION = re.compile(r"^## (.+)$")
_ROW = re.compile(r"^\| (.+) \| \[.+\]\((.+)\) \|$")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_SUMMARY = re.compile(r"^# .+\n\n(.+)$", re.MULTILINE)


def sections() -> Iterator[tuple[str, str, str]]:
    """The rows of the list of pages: the heading of the section, the question, and the path of the page."""
    heading = ""
    for line in (ROOT / INDEX).read_text(encoding="utf-8").splitlines():
        if found := _SECTION.match(line):
            heading = found[1]
        elif found := _ROW.match(line):
            yield heading, found[1], str((ROOT / "docs" / found[2]).resolve().relative_to(ROOT))


def copy_pages() -> None:
    """Copies all pages into `PAGES`, each to the place that it has in the source tree."""
    for page in sorted(page for pattern in COPIED for page in ROOT.glob(pattern)):
        target = PAGES / page.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            target.write_text(_links_to_pages(page.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copy(page, target)


def write_notebooks() -> list[str]:
    """The paths of the pages of the notebooks, which are written into `PAGES`."""
    exporter, writer = MarkdownExporter(), FilesWriter(build_directory=str(PAGES / "notebooks"))
    names = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    for name in names:
        images = {"output_files_dir": f"{name}_files"}
        text, resources = exporter.from_filename(str(ROOT / "notebooks" / f"{name}.ipynb"), images)
        writer.write(_links_to_pages(text), resources, name)
    return [f"notebooks/{name}.md" for name in names]


def menu(notebooks: list[str]) -> list[Any]:
    """The menu of the site: the sections of the list of pages, with each page by its title."""
    parts: dict[str, list[dict[str, str]]] = {}
    for heading, _, path in sections():
        parts.setdefault(heading, []).append({_first(_TITLE, path): path})
    examples = [{_first(_TITLE, path): path} for path in notebooks]
    return [
        {"spark-mq": "README.md"},
        {"All pages": INDEX},
        *({heading: pages} for heading, pages in parts.items()),
        {"Notebooks": examples},
        {"Changes": "CHANGELOG.md"},
        {"Security": "SECURITY.md"},
    ]


def llms_text() -> str:
    """The list of all pages for language models (llmstxt.org)."""
    lines, last = ["# spark-mq", "", f"> {_first(_SUMMARY, 'README.md')}"], ""
    for heading, question, path in sections():
        lines += [] if heading == last else ["", f"## {heading}", ""]
        lines.append(f"- [{_first(_TITLE, path)}]({path.replace('.md', '.html')}): {question}")
        last = heading
    return "\n".join(lines) + "\n"


def _links_to_pages(text: str) -> str:
    return text.replace(".ipynb)", ".md)")


def _first(pattern: re.Pattern[str], path: str) -> str:
    found = pattern.search((PAGES / path).read_text(encoding="utf-8"))
    assert found, f"{path} has no heading"
    return found[1]


if __name__ == "__main__":
    shutil.rmtree(PAGES, ignore_errors=True)
    copy_pages()
    settings = {"INHERIT": "../docs/mkdocs.yml", "nav": menu(write_notebooks())}
    (PAGES / "llms.txt").write_text(llms_text(), encoding="utf-8")
    (BUILD / "mkdocs.yml").write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML, too

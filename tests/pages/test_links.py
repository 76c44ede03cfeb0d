"""Links of Markdown files and notebooks lead to files, and to headings, that are there."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stores import PROJECT

FOLDERS = (".", "docs", "benchmarks", "notebooks", "tests/stores")
DOCUMENTS = sorted(path for folder in FOLDERS for form in ("*.md", "*.ipynb") for path in (PROJECT / folder).glob(form))
INDEX = PROJECT / "docs" / "README.md"
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_NAMED_MODULE = re.compile(r"`((?:spark_mq|tests|jobs|benchmarks)/[\w/.-]+)`")
_NAMED_PAGE = re.compile(r"\bdocs/[\w-]+\.md")


def text_of(document: Path) -> str:
    """The Markdown of a file, or of the cells of a notebook."""
    text = document.read_text(encoding="utf-8")
    if document.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")


def links_of(document: Path) -> Iterator[str]:
    """The targets of all links that do not leave the project; code has no links."""
    for target in _LINK.findall(_CODE.sub("", text_of(document))):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors_of(document: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a file."""
    text = re.sub(r"(?ms)^```.*?^```", "", text_of(document))
    slugs = [re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in _HEADING.findall(text)]
    seen: Counter[str] = Counter()
    anchors = set()
    for slug in slugs:
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in links_of(document):
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.is_relative_to(PROJECT.resolve()), target
        assert path.exists(), target
        assert not anchor or anchor in anchors_of(path), target


def test_the_index_has_every_page() -> None:
    linked = {(INDEX.parent / target).resolve() for target in links_of(INDEX)}
    assert set(INDEX.parent.glob("*.md")) - {INDEX} <= linked


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_module_that_a_page_names_is_there(document: Path) -> None:
    named = set(_NAMED_MODULE.findall(text_of(document)))
    assert [name for name in sorted(named) if not (PROJECT / name).exists()] == []


def test_every_page_that_the_code_names_is_there() -> None:
    files = [PROJECT / "Makefile", *PROJECT.glob(".ci/*")]
    for folder in ("spark_mq", "jobs", "conf", "notebooks", "benchmarks", "tests"):
        files += [path for form in ("*.py", "*.sql", "*.conf", "*.ipynb") for path in (PROJECT / folder).rglob(form)]
    named = {(page, path) for path in files for page in _NAMED_PAGE.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 3
    assert not [(page, path) for page, path in named if not (PROJECT / page).is_file()]

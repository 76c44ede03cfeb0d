"""The blocks of Python on the pages: each can be parsed, and the names of the package that they use are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.pages import blocks
from tests.support.stores import PROJECT

BLOCKS = [(page.relative_to(PROJECT), block) for page, block in blocks("python")]


def names_used(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each module of the package, with a name that is taken from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute):
            module = ast.unparse(node.value)
            if re.fullmatch(r"spark_mq(\.\w+)*", module):
                yield module, node.attr


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{page}-{n}" for n, (page, _) in enumerate(BLOCKS)])
def test_a_block_uses_names_that_are_there(page: Path, block: str) -> None:
    for module, name in names_used(ast.parse(block, str(page))):
        assert hasattr(import_module(module), name), f"{module}.{name}"

"""The docstring of a package names all of its modules, and only names that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.stores import PROJECT

PACKAGE = PROJECT / "spark_mq"
PACKAGES = sorted(
    file.parent for file in PACKAGE.rglob("__init__.py") if file.parent.name not in ("spark_mq", "filters")
)
_NAME = re.compile(r"`([a-z0-9_]+)`")
_OTHERS = {"rows", "commitlog", "consumequeue", "deltalake", "abort", "rocketmq", "rocketmq_lookup", "lag"}
"""Files of a store, packages, and names of Spark and of commands."""


def modules_of(package: Path) -> set[str]:
    return {
        path.stem
        for path in package.iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()
    }


def described(package: Path) -> set[str]:
    return set(_NAME.findall(ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(PACKAGE)))
def test_the_docstring_of_a_package_names_its_modules(package: Path) -> None:
    assert modules_of(package) - described(package) == set()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(PACKAGE)))
def test_the_docstring_of_a_package_names_only_what_exists(package: Path) -> None:
    functions = {name for file in package.rglob("*.py") for name in re.findall(r"def (\w+)", file.read_text())}
    modules = set[str]().union(*map(modules_of, [PACKAGE, *PACKAGES]))
    assert described(package) - functions - modules - _OTHERS == set()

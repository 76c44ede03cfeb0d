"""Tests with brokers are skipped on a machine without Java and Maven."""

from __future__ import annotations

import pytest

from tests.broker.harness import missing


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Ask once, and only if such a test runs: the answer takes the start of a JVM."""
    if item.get_closest_marker("broker") and (lacking := missing()):
        pytest.skip(lacking)

"""What the other tests are parametrised over is really there."""

from __future__ import annotations

import pytest

from tests.support.stores import OWN_STORES, SHARED_STORES, stores_in


def test_the_project_has_stores_of_its_own_from_both_versions() -> None:
    names = {store.name for store in stores_in(OWN_STORES)}
    assert {"workload-533", "workload-49x", "killed-533", "killed-49x", "stale-533", "stale-49x"} <= names


def test_shared_stores_take_part_where_they_are() -> None:
    if not SHARED_STORES.is_dir():
        pytest.skip(f"{SHARED_STORES} is not there: the tests use the project's own stores only")
    assert {"visible-533", "visible-49x", "abort-533", "deleted-533", "edge-533", "edge-49x", "stale-533"} <= {
        store.name for store in stores_in(SHARED_STORES)
    }

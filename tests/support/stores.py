"""Stores that real brokers wrote, with what Apache RocketMQ said of them; the tests' judge.

The project's own lie in `tests/stores`. More can lie in `../shared/stores`, beside the project, or where
`SPARK_MQ_STORES` says; tests that want those skip where they are absent.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_mq.testing.corpus import SAME as SAME
from spark_mq.testing.corpus import Fact as Fact
from spark_mq.testing.corpus import RealStore as RealStore
from spark_mq.testing.corpus import index_keys as index_keys
from spark_mq.testing.corpus import messages_by_key as messages_by_key
from spark_mq.testing.corpus import stores_in as stores_in
from tests.support.soak import SOAKS

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

PROJECT = Path(__file__).resolve().parent.parent.parent
OWN_STORES = PROJECT / "tests" / "stores"
SHARED_STORES = Path(os.environ.get("SPARK_MQ_STORES", PROJECT.parent / "shared" / "stores"))

WORKLOAD = RealStore("workload-533", OWN_STORES)
"""All that clients can send to a broker of 5.3.3, which then stopped cleanly."""

Unpack = Callable[[RealStore], Path]
"""The fixture `unpacked`: gives the folder of a store."""


STORES = {store.name: store for store in stores_in(OWN_STORES)}
"""The project's own stores, by name."""

WORKLOADS = [store for name, store in STORES.items() if name.startswith("workload")]
"""Of each major version, a store of all that clients can send."""


def all_stores() -> list[RealStore]:
    """The project's own stores, and the shared ones where they are."""
    return stores_in(OWN_STORES) + stores_in(SHARED_STORES)


def usual_stores() -> list[RealStore]:
    """The project's own stores, which cover every rule; in a soak all stores."""
    return all_stores() if SOAKS else stores_in(OWN_STORES)


def marked_stores(*beginnings: str) -> list[ParameterSet]:
    """The stores whose names begin so, for a test with Spark; `make test` leaves out the shared ones."""
    named = [store for store in all_stores() if not beginnings or store.name.startswith(beginnings)]
    is_own = stores_in(OWN_STORES).__contains__
    return [pytest.param(store, id=str(store), marks=() if is_own(store) else pytest.mark.shared) for store in named]


def shared_store(name: str) -> list[RealStore | ParameterSet]:
    """One shared store to parametrise a test over; a skipped parameter if it is absent, so the test is never empty."""
    store = RealStore(name, SHARED_STORES)
    if store in stores_in(SHARED_STORES):
        return [store]
    return [pytest.param(store, marks=pytest.mark.skip(reason=f"{SHARED_STORES} has no {name}"))]


def version_stores(*beginnings: str) -> list[ParameterSet]:
    """The shared stores of many versions that begin so; a skipped parameter if they are absent."""
    folder = SHARED_STORES / "versions"
    named = [
        RealStore(how.stem, folder)
        for how in sorted(folder.glob("*.how"))
        if not beginnings or how.stem.startswith(beginnings)
    ]
    absent = [pytest.param(None, marks=pytest.mark.skip(reason=f"{folder} has no such stores"))]
    return [pytest.param(store, id=store.name) for store in named] or absent


def without_full_index_files(store: Path, folder: Path) -> Path:
    """A copy of a store in `folder`, with only its last index file, which does not show its slots and entries."""
    copy = Path(shutil.copytree(store, folder / store.name))
    for file in sorted((copy / "index").iterdir())[:-1]:
        file.unlink()
    return copy


def tree_of(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in _files(folder)}


def files_of(store: Path) -> dict[str, bytes]:
    """The files of a store, without the lock and what jobs keep there."""
    return {name: data for name, data in tree_of(store).items() if not name.startswith((".spark_mq", "lock"))}


def index_of(store: Path) -> list[bytes]:
    """The index files of a store, oldest first; their names say only when they were made."""
    return [content for _, content in sorted(tree_of(store / "index").items())]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def segment_files(store: Path) -> list[Path]:
    """The files of a store's commit log."""
    return sorted((store / "commitlog").iterdir())

"""Stores that real brokers wrote, with what Apache RocketMQ said of them; the tests' judge.

The project's own lie in `tests/stores`. More can lie in `../shared/stores`, beside the project, or where
`SPARK_MQ_STORES` says; tests that want those skip where they are absent.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.soak import SOAKS

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

PROJECT = Path(__file__).resolve().parent.parent.parent
OWN_STORES = PROJECT / "tests" / "stores"
SHARED_STORES = Path(os.environ.get("SPARK_MQ_STORES", PROJECT.parent / "shared" / "stores"))

Fact = dict[str, Any]

SAME = {
    "commit_log_offset": "offset",
    "store_size": "size",
    "offset_message_id": "msgId",
    "topic": "topic",
    "queue_id": "queueId",
    "queue_offset": "queueOffset",
    "tags": "tags",
    "unique_key": "uniqKey",
    "flag": "flag",
    "sys_flag": "sysFlag",
    "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset",
    "body_crc": "bodyCRC",
}
"""Columns of `messages` whose values a fact of kind `msg` has as they are, and what it calls them."""


@dataclass(frozen=True)
class RealStore:
    """One packed store."""

    name: str
    folder: Path

    def __str__(self) -> str:
        return f"{'own' if self.folder == OWN_STORES else 'shared'}-{self.name}"

    @property
    def broker_conf(self) -> Path:
        """The settings of the broker that wrote it."""
        return self.folder / f"{self.name}.conf"

    def facts(self, kind: str) -> list[Fact]:
        """The facts of one kind (`msg`, `queue`, `query`, ...), as the Java classes gave them."""
        return list(_facts(self.folder / f"{self.name}.facts.jsonl.gz").get(kind, []))

    def told(self, kind: str) -> list[list[str]]:
        """What the application that wrote a store of many versions did or was told (`tx`, `delay`, `fail`, ...)."""
        lines = (self.folder / f"{self.name}.truth").read_text().splitlines()
        return [fields for first, *fields in (line.split("\t") for line in lines) if first == kind]

    def unpack(self, folder: Path, tree: str = "") -> Path:
        """Unpack the store (or its tree `rebuilt` or `recovered`) below `folder`; returns where it lies."""
        name = f"{self.name}.{tree}" if tree else self.name
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "xzf", str(self.folder / f"{name}.tar.gz"), "-C", str(folder)], check=True)
        return folder / name

    def unpack_as_described(self, folder: Path) -> Path:
        """Unpack the store with the files that its facts speak of: of one that was killed, those of its recovery."""
        path = self.unpack(folder)
        for tree in ("recovered", "rebuilt"):
            if self.name.startswith(("killed", "abort", "lagging")) and self.has(tree):
                for name in ("consumequeue", "index"):
                    shutil.rmtree(path / name, ignore_errors=True)
                shutil.copytree(self.unpack(folder, tree), path, dirs_exist_ok=True)
        return path

    @property
    def broker_version(self) -> str:
        """The version of the broker that wrote it, or its line."""
        how = self.folder / f"{self.name}.how"
        if how.is_file():
            return how.read_text().split()[0]
        return {"49x": "4.9", "550": "5.5.0"}.get(self.name[-3:], "5")

    def has(self, tree: str) -> bool:
        """Whether a tree made by a real rebuild or recovery is packed beside the store."""
        return (self.folder / f"{self.name}.{tree}.tar.gz").is_file()


WORKLOAD = RealStore("workload-533", OWN_STORES)
"""All that clients can send to a broker of 5.3.3, which then stopped cleanly."""

Unpack = Callable[[RealStore], Path]
"""The fixture `unpacked`: gives the folder of a store."""


@cache
def _facts(file: Path) -> dict[str, list[Fact]]:
    kinds: dict[str, list[Fact]] = {}
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            fact = json.loads(line)
            kinds.setdefault(fact["t"], []).append(fact)
    return kinds


def stores_in(folder: Path) -> list[RealStore]:
    """The packed stores of a folder that have facts."""
    suffix = ".facts.jsonl.gz"
    return [RealStore(path.name.removesuffix(suffix), folder) for path in sorted(folder.glob(f"*{suffix}"))]


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


def index_keys(fact: Fact) -> set[str]:
    """What the index has of a message: pieces of KEYS between spaces, and the unique key; none of type ROLLBACK."""
    if fact["sysFlag"] & 0xC == 0xC:
        return set()
    return {key for key in [*(fact.get("keys") or "").split(" "), fact.get("uniqKey")] if key}


def messages_by_key(facts: list[Fact]) -> dict[tuple[str, str], list[Fact]]:
    """The messages that the index has of each topic and key, newest first."""
    found: dict[tuple[str, str], list[Fact]] = {}
    for fact in sorted(facts, key=lambda fact: -int(fact["offset"])):
        for key in index_keys(fact):
            found.setdefault((fact["topic"], key), []).append(fact)
    return found


def without_full_index_files(store: Path, folder: Path) -> Path:
    """A copy of a store in `folder`, with only its last index file, which does not show its slots and entries."""
    copy = Path(shutil.copytree(store, folder / store.name))
    for file in sorted((copy / "index").iterdir())[:-1]:
        file.unlink()
    return copy


def tree_of(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in _files(folder)}


def index_of(store: Path) -> list[bytes]:
    """The index files of a store, oldest first; their names say only when they were made."""
    return [content for _, content in sorted(tree_of(store / "index").items())]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def segment_files(store: Path) -> list[Path]:
    """The files of a store's commit log."""
    return sorted((store / "commitlog").iterdir())

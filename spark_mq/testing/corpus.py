"""Stores that real brokers wrote, with what Apache RocketMQ's own classes said of them.

The stores are in the folder `tests/stores` of the source tree and of the source distribution. Its README.md says which
broker wrote each, what is special, and which fields the facts of each kind have.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

Fact = dict[str, Any]
"""What the Java classes said of one message, queue, look-up, ...; `t` is its kind."""

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
    """A packed store: `NAME.tar.gz`, `NAME.conf` and `NAME.facts.jsonl.gz` in `folder`."""

    name: str
    folder: Path

    def __str__(self) -> str:
        return f"{self.folder.parent.name}-{self.name}"

    @property
    def broker_conf(self) -> Path:
        """The settings of the broker that wrote it."""
        return self.folder / f"{self.name}.conf"

    def facts(self, kind: str) -> list[Fact]:
        """The facts of one kind, as the Java classes gave them.

        Args:
            kind: `msg`, `queue`, `query`, ...: the README.md of the stores has the list.
        """
        return list(_facts(self.folder / f"{self.name}.facts.jsonl.gz").get(kind, []))

    def told(self, kind: str) -> list[list[str]]:
        """What the application that wrote a store of many versions did or was told (`tx`, `delay`, `fail`, ...)."""
        lines = (self.folder / f"{self.name}.truth").read_text().splitlines()
        return [fields for first, *fields in (line.split("\t") for line in lines) if first == kind]

    def unpack(self, folder: Path, tree: str = "") -> Path:
        """Unpack the store below `folder`; returns its path.

        Args:
            folder: Where its folder is made. Files are sparse, and keep their times, which matter to brokers of 4.9.
            tree: `rebuilt` or `recovered` for only the files that a broker made again from the store.
        """
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
        """Whether the files that a broker made again, `rebuilt` or `recovered`, are packed as well."""
        return (self.folder / f"{self.name}.{tree}.tar.gz").is_file()


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

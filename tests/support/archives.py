"""Archives that tests make, change and read."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
from spark_mq.archive.last_run import end_if_nothing_is_new
from spark_mq.archive.report import ArchiveReport
from spark_mq.archive.writer import archive
from spark_mq.io.location import Location
from spark_mq.store.config.named_stores import DEFAULT_CLUSTER
from tests.support.delta_rows import delta_rows
from tests.support.soak import cases
from tests.support.stores import STORES

A, B = STORES["workload-533"], STORES["workload-49x"]
READ_ONLY = dict(cases([("x", A), ("y", B)], [("x", A), ("y", B), ("z", STORES["crc-533"])]))
"""By broker, the stores of the archive that tests share."""


class Archive:
    """An archive below a folder, and what is in it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.table = str(folder / "messages")

    def run(self, store: Path, broker: str = "a", **options: Any) -> ArchiveReport:
        return archive(self.spark, str(store), self.table, broker=broker, store_name="s", **options)

    def copy(self, folder: Path) -> Archive:
        """The same archive in another folder."""
        shutil.copytree(self.folder, folder)
        return Archive(self.spark, folder)

    def end_if_nothing_is_new(self, store: Path, broker: str = "a") -> int | None:
        """What the command asks before it starts Spark."""
        identity = StoreIdentity(DEFAULT_CLUSTER, broker, "s")
        return end_if_nothing_is_new(Location.resolve(str(store)), ArchiveTables.of(self.table), identity)

    def rows(self, suffix: str = "", broker: str = "a") -> list[dict[str, Any]]:
        return [row for row in delta_rows(Path(f"{self.table}{suffix}")) if row["broker"] == broker]

    def messages(self, broker: str = "a") -> list[tuple[int, str]]:
        """Offset and digest of the body of each message."""
        return sorted((row["commit_log_offset"], digest(row["body"])) for row in self.rows(broker=broker))

    def keys(self, broker: str = "a") -> list[tuple[str, str, str, int]]:
        rows = self.rows("_keys", broker)
        return sorted((row["topic"], row["key"], row["key_type"], row["commit_log_offset"]) for row in rows)

    def committed_by_kernel(self) -> set[str]:
        """The tables in which a version consists of files that tasks wrote."""
        logs = self.folder.glob("*/_delta_log/*.json")
        return {log.parent.parent.name for log in logs if '"engineInfo":"Kernel' in log.read_text()}


def digest(body: bytes) -> str:
    return hashlib.md5(body).hexdigest()

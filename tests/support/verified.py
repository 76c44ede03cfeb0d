"""A store that is checked in this process, and bytes of a store that are changed on purpose. No Spark here."""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_mq.format.record import Record, decode_record
from spark_mq.io.location import Location
from spark_mq.job.tasks import LocalTasks, TaskRunner
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.tiered_storage import TieredStorage
from spark_mq.verifier.check import VerifyRequest, check_store
from spark_mq.verifier.finding import Finding, rows
from spark_mq.verifier.result import VerifyReport, read_findings
from tests.support.stores import OWN_STORES, Fact, RealStore


@dataclass(frozen=True)
class _Appending(TaskRunner):
    """Runs checks; after the reading of the log, and before everything else, a broker appends."""

    append: Callable[[], object] = list

    def each(self, name: str, *arguments: Any, **named: Any) -> list[Any]:
        results = super().each(name, *arguments, **named)
        if name.startswith("check log"):
            self.append()
        return results


def check(
    store: Path | str,
    conf: Path | str | None,
    split_size: int = 128 << 20,
    tiered: Path | None = None,
    *,
    journal: Path | None = None,
    append: Callable[[], object] = list,
) -> tuple[VerifyReport, list[Finding]]:
    """The report of a check, and all findings; a broker can append meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        work = Location.resolve(folder)
        settings = BrokerConf.of(None if conf is None else str(conf))
        location = Location.resolve(str(store))
        storage = None if tiered is None else TieredStorage.of(location, str(tiered))
        since = None if journal is None else Location.resolve(str(journal))
        request = VerifyRequest(location, settings, split_size=split_size, since_last=since, tiered=storage)
        checked = check_store(request, work, _Appending(LocalTasks(1), append=append))
        findings = list(rows(read_findings(checked.files)))
    assert sum(checked.report.counts.values()) == len(findings)
    return checked.report, findings


def grave(findings: list[Finding]) -> list[Finding]:
    """The findings from warning up."""
    return [finding for finding in findings if finding.severity != "note"]


@dataclass(frozen=True)
class Bench:
    """A copy of a small store, whose bytes a test changes."""

    packed: RealStore
    path: Path

    @classmethod
    def of(cls, unpacked: Path, name: str, folder: Path) -> Bench:
        copy = Path(shutil.copytree(unpacked, folder / name, symlinks=True))
        return cls(RealStore(name, OWN_STORES), copy)

    @property
    def messages(self) -> list[Fact]:
        """What the Java store said of each message."""
        return self.packed.facts("msg")

    def setting(self, name: str) -> int:
        """A number of the broker's settings."""
        return int(BrokerConf.of(str(self.packed.broker_conf)).settings[name])

    def segment(self, offset: int) -> tuple[str, int]:
        """The segment that contains a commit log offset, as a path in the store, and the position in it."""
        size = self.setting("mappedFileSizeCommitLog")
        return f"commitlog/{offset // size * size:020d}", offset % size

    def read(self, file: str, position: int, length: int) -> bytes:
        data = (self.path / file).read_bytes()
        return data[position : position + length]

    def write(self, file: str, position: int, data: bytes) -> None:
        with (self.path / file).open("r+b") as stream:
            stream.seek(position)
            stream.write(data)

    def flip(self, file: str, position: int, bit: int = 0) -> None:
        (byte,) = self.read(file, position, 1)
        self.write(file, position, bytes([byte ^ 1 << bit]))

    def record(self, offset: int) -> Record:
        file, position = self.segment(offset)
        return decode_record((self.path / file).read_bytes(), position)

    def unit(self, topic: str, queue_id: int, number: int) -> tuple[str, int]:
        """The file of a unit, as a path in the store, and the position in it."""
        size = self.setting("mappedFileSizeConsumeQueue")
        return f"consumequeue/{topic}/{queue_id}/{number * 20 // size * size:020d}", number * 20 % size

    def index_file(self, number: int) -> str:
        """An index file by its place, as a path in the store."""
        return f"index/{sorted(file.name for file in (self.path / 'index').iterdir())[number]}"

    def entry(self, number: int) -> int:
        """The position of an entry in an index file."""
        return 40 + 4 * self.setting("maxHashSlotNum") + 20 * number

    def entries(self, file: str) -> list[tuple[int, int, int, int]]:
        """The entries of an index file, from entry 1 on."""
        (count,) = struct.unpack(">i", self.read(file, 36, 4))
        data = self.read(file, self.entry(1), 20 * (count - 1))
        return list(struct.iter_unpack(">iqii", data))

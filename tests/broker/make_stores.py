"""Makes the project's own small stores anew: ``python -m tests.broker.make_stores [NAME...]``.

Each is the work of a released broker and its clients, or of the Java message store. Beside ``NAME.tar.gz``
there are ``NAME.conf``, the broker's settings, and ``NAME.facts.jsonl.gz``, what the Java message store says.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.broker import harness
from tests.broker.lite_topics import LiteTopics
from tests.support.stores import OWN_STORES, WORKLOAD

SETTINGS: Final = {
    "autoCreateTopicEnable": "false",
    "flushConsumerOffsetInterval": "1000",
    "flushDelayOffsetInterval": "1000",
    "mappedFileSizeCommitLog": "131072",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "500",
    "messageIndexEnable": "true",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "2",
    "transactionTimeOut": "1000",
}
TIMER_SETTINGS: Final = {"mappedFileSizeTimerLog": "65536", "transactionOpBatchInterval": "100"}
SMALL_SETTINGS: Final = {
    "autoCreateTopicEnable": "false",
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "50",
    "maxIndexNum": "200",
    "messageIndexEnable": "true",
}
NO_TIMERS: Final = {"timerWheelEnable": "false"}
IN_ROCKSDB: Final = {
    "flushConsumerOffsetInterval": "1000",
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "2000",
    "mappedFileSizeTimerLog": "262144",
    "maxHashSlotNum": "100",
    "maxIndexNum": "500",
    "storeType": "defaultRocksDB",
    "transactionCheckInterval": "3000",
    "transactionTimeOut": "1500",
}
ALL_IN_ROCKSDB: Final = {
    **IN_ROCKSDB,
    "indexFileReadEnable": "false",
    "indexRocksDBEnable": "true",
    "timerRocksDBEnable": "true",
    "transRocksDBEnable": "true",
}
FILTER_SETTINGS: Final = {
    **SMALL_SETTINGS,
    "enableCalcFilterBitMap": "true",
    "enableConsumeQueueExt": "true",
    "enablePropertyFilter": "true",
    "flushConsumerOffsetInterval": "1000",
    "mappedFileSizeConsumeQueueExt": "2000",
}
TIERED_SETTINGS: Final = {
    **SMALL_SETTINGS,
    "mappedFileSizeCommitLog": "32768",
    "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
    "tieredBackendServiceProvider": "org.apache.rocketmq.tieredstore.provider.PosixFileSegment",
    "tieredStoreCommitLogMaxSize": "8192",
    "tieredStoreConsumeQueueMaxSize": "400",
    "tieredStoreGroupCommit": "false",
    "tieredStoreIndexFileMaxHashSlotNum": "20",
    "tieredStoreIndexFileMaxIndexNum": "300",
    "flushConsumerOffsetInterval": "1000",
}
LITE_SETTINGS: Final = {
    **SMALL_SETTINGS,
    **NO_TIMERS,
    "combineCQUseRocksdbForLmq": "true",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "flushConsumerOffsetInterval": "1000",
    "liteTtlCheckInterval": "2000",
    "minLiteTTl": "1000",
    "rocksdbCQDoubleWriteEnable": "true",
}

_UNIT: Final = struct.Struct(">qiq")
_DERIVED: Final = ("consumequeue", "index", "checkpoint")
QUEUE_TREES: Final = ("consumequeue", "consumequeue_ext")
_AFTER_TIMERS: Final = 8.0
"""Seconds in which a broker delivers timers and delays, and asks about transactions."""
_UNPACKED: Final = ("lock", "abort.bak", "timerwheel")
"""Not packed: files that a broker makes anew, and that no one reads."""


def short(version: str) -> str:
    """Name a version as the stores do."""
    return "533" if version == "5.3.3" else "49x"


def settings_of(version: str, base: dict[str, str], more: dict[str, str]) -> dict[str, str]:
    """Add settings that only 5.x knows."""
    return {**base, **more} if version.startswith("5.") else dict(base)


class StoreMaker:
    """Makes the stores in a scratch directory and packs them into a target directory."""

    def __init__(self, scratch: Path, target: Path) -> None:
        self._scratch = scratch
        self._target = target

    def recipes(self) -> dict[str, Callable[[], None]]:
        """Return for the name of each store how to make it; one of them needs the packed workload store."""
        recipes: dict[str, Callable[[], None]] = {}
        for version in harness.VERSIONS:
            kinds = {"workload": self._workload, "killed": self._killed, "stale": self._stale}
            for kind, make in kinds.items():
                name = f"{kind}-{short(version)}"
                recipes[name] = partial(make, name, version)
        recipes["deleted-533"] = partial(self._deleted, "deleted-533", harness.VERSIONS[0])
        recipes["lagging-533"] = partial(self._lagging, "lagging-533", harness.VERSIONS[0])
        recipes["crc-533"] = partial(self._crc, "crc-533", harness.VERSIONS[0])
        recipes["workload-550"] = partial(self.few_of_each, "workload-550", "5.5.0")
        recipes["upgraded-550"] = partial(self._upgraded, "upgraded-550", ("4.9.7", "5.3.3", "5.5.0", "5.3.3", "5.5.0"))
        recipes["tiered-533"] = partial(self._tiered, "tiered-533", "5.3.3")
        recipes["tiered-550"] = partial(self._tiered, "tiered-550", "5.5.0")
        recipes["filtered-533"] = partial(self._filtered, "filtered-533", harness.VERSIONS[0])
        small = {**IN_ROCKSDB, "mappedFileSizeCommitLog": "131072"}
        recipes["fRocks550"] = partial(self._in_rocksdb, "fRocks550", "5.5.0", small)
        recipes["fLite550"] = partial(self._lite, "fLite550", "5.5.0")
        recipes["fAllRocks550"] = partial(self._in_rocksdb, "fAllRocks550", "5.5.0", ALL_IN_ROCKSDB)
        return recipes

    def _workload(self, name: str, version: str) -> None:
        """Everything a broker, its clients and the message store can put into a store, with restarts."""
        settings = settings_of(version, SETTINGS, TIMER_SETTINGS)
        store = self._scratch / name
        harness.append(store, settings, seed=1, version=version)
        with harness.Broker(version, store, settings) as broker:
            harness.send(broker, "sequence", seed=2, count=330, body=60)
        harness.append(store, settings, seed=3, version=version)
        with harness.Broker(version, store, settings) as broker:
            harness.send(broker, "mixed", seed=4, count=700)
        patient = {**settings, "transactionCheckInterval": "3600000"}
        with harness.Broker(version, store, patient) as broker:
            harness.send(broker, "half", seed=9, count=3)
        self.describe(name, store, settings, version)
        self._pack(name, store)

    def _killed(self, name: str, version: str) -> None:
        self.killed(name, version)
        self.describe(name, self._scratch / name, settings_of(version, SETTINGS, NO_TIMERS), version)

    def killed(self, name: str, version: str, attempts: int = 20) -> Path:
        """A broker killed while it takes messages faster than it dispatches them, if one of the attempts gets it.

        Returns the store after a boot; the killed one is packed.
        """
        settings = settings_of(version, SETTINGS, NO_TIMERS)
        store = self._scratch / name
        for attempt in range(attempts):
            shutil.rmtree(store, ignore_errors=True)
            with harness.Broker(version, store, settings) as broker:
                harness.send(broker, "sequence", seed=5, count=30)
                sender = harness.Sender(broker, "burst", seed=10 + attempt, count=100_000)
                while _log_bytes(store) < 300_000:
                    time.sleep(0.001)
                broker.kill()
                sender.wait()
            if _queue_end(store) < _log_bytes(store):
                break
        recovered = harness.copy_store(store, self._scratch / f"{name}.recovered")
        self._write_conf(name, settings)
        self._pack(name, store)
        with harness.Broker(version, recovered, settings):
            pass
        self._pack(recovered.name, recovered, _DERIVED)
        return recovered

    def _stale(self, name: str, version: str) -> None:
        """A log that a recovery cut, with complete old records behind its new end."""
        # One index file for all: recovery then drops the entries of the messages that it cuts off.
        settings = {**settings_of(version, SMALL_SETTINGS, NO_TIMERS), "maxIndexNum": "2000"}
        store = self._scratch / name
        with harness.Broker(version, store, settings) as broker:
            harness.send(broker, "sequence", seed=6, count=420, body=200)
            broker.kill()
        broken = 360
        flip_body_byte(store, broken)
        with harness.Broker(version, store, settings) as broker:
            # Shorter than those whose places they take, in the same queues.
            harness.send(broker, "sequence", seed=6, count=9, first=broken, body=40)
        self.describe(name, store, settings, version)
        self._pack(name, store)

    def _deleted(self, name: str, version: str) -> None:
        """The first two segments are gone, as after their time is over."""
        settings = settings_of(version, SETTINGS, TIMER_SETTINGS)
        workload = WORKLOAD.unpack(self._scratch / "unpacked")
        store = harness.copy_store(workload, self._scratch / name)
        for segment in sorted((store / "commitlog").iterdir())[:2]:
            segment.unlink()
        with harness.Broker(version, store, settings):
            pass
        self.describe(name, store, settings, version)
        self._pack(name, store)
        self._pack_rebuilt(name, store, settings, version)

    def _lagging(self, name: str, version: str) -> None:
        """A clean stop, but the queue of the last messages lacks its last units; facts: of the whole."""
        settings = settings_of(version, SMALL_SETTINGS, NO_TIMERS)
        store = self._scratch / name
        with harness.Broker(version, store, settings) as broker:
            harness.send(broker, "sequence", seed=7, count=90)
            harness.send(broker, "last-queue", seed=8, count=30)
        self.describe(name, store, settings, version)
        queue = store / "consumequeue" / "LastQueue" / "0" / f"{0:020d}"
        times = queue.stat()
        with queue.open("r+b") as file:
            file.seek(27 * _UNIT.size)
            file.write(bytes(3 * _UNIT.size))
        os.utime(queue, ns=(times.st_atime_ns, times.st_mtime_ns))
        self._pack(name, store)
        self._pack_rebuilt(name, store, settings, version)

    def _crc(self, name: str, version: str) -> None:
        """Records with a CRC of their own among the properties, which 5.2.0 and later can add."""
        settings = settings_of(version, {**SETTINGS, "enabledAppendPropCRC": "true"}, TIMER_SETTINGS)
        store = self._scratch / name
        harness.append(store, settings, seed=11, version=version)
        with harness.Broker(version, store, settings) as broker:
            harness.send(broker, "mixed", seed=12, count=150)
        self.describe(name, store, settings, version)
        self._pack(name, store)

    def few_of_each(self, name: str, version: str) -> None:
        """Everything that a broker, its clients and the message store can put into a store, a few times."""
        settings = settings_of(version, SETTINGS, TIMER_SETTINGS)
        store = self._scratch / name
        harness.append(store, settings, seed=13, version=version)
        with harness.Broker(version, store, settings) as broker:
            harness.send(broker, "mixed", seed=14, count=60)
        self.describe(name, store, settings, version)
        self._pack(name, store)

    def _in_rocksdb(self, name: str, version: str, settings: dict[str, str]) -> None:
        """Everything that clients send, a few times, with queues and settings in RocksDB."""
        store = self._scratch / name
        with harness.Broker(version, store, settings) as broker:
            harness.send(broker, "mixed", seed=77, count=60)
            time.sleep(_AFTER_TIMERS)
        self.describe(name, store, settings, version)
        how = f"{version} {name} mixed 77 60 {';'.join(f'{key}={settings[key]}' for key in sorted(settings))}\n"
        (self._folder(name) / f"{name}.how").write_text(how, encoding="utf-8")
        self._pack(name, store)

    def _lite(self, name: str, version: str) -> None:
        """Lite topics with the settings of RIP-83: their queues are in RocksDB, and all others in files.

        Two expired, and one of them was used again. Facts, besides those of the Java store: what the broker says of
        each lite topic, and of the group that consumed some of them.
        """
        store = self._scratch / name
        with (
            harness.Broker(version, store, LITE_SETTINGS) as broker,
            LiteTopics(broker, "Sensors") as lite,
            LiteTopics(broker, "Short", minutes=1) as short,
        ):
            lite.subscribe("readers", "abc")
            for number in range(60):
                lite.send("abcd"[number % 4], number)
            for number in range(10):
                short.send("again", number)
            short.send("gone", 0)
            time.sleep(1)
            lite.consume("readers", 20, 9)
            short.await_ends({"again": 0, "gone": 0})
            for number in range(3):
                short.send("again", number)
            facts = [*lite.facts("abcd", "readers"), *short.facts(["again", "gone"])]
        self.describe(name, store, LITE_SETTINGS, version, facts)
        self._pack(name, store)

    def _upgraded(self, name: str, versions: tuple[str, ...]) -> None:
        """One store that brokers of several versions had, one after the other; facts: of the last one."""
        store = self._scratch / name
        for number, version in enumerate(versions):
            settings = settings_of(version, SETTINGS, TIMER_SETTINGS)
            with harness.Broker(version, store, settings) as broker:
                harness.send(broker, "sequence", seed=20 + number, count=50, body=40)
                if version == versions[2]:
                    harness.send(broker, "mixed", seed=30 + number, count=15)
        self.describe(name, store, settings, versions[-1])
        self._pack(name, store)

    def _filtered(self, name: str, version: str) -> None:
        """Groups with filters, and consume queue extensions with the bits of their filters; no facts.

        The tree `rebuilt` is what a boot of the broker makes without its queues: it then knows all filters.
        """
        settings = settings_of(version, FILTER_SETTINGS, NO_TIMERS)
        store = self._scratch / name
        with harness.Broker(version, store, settings) as broker:
            events = harness.at_broker(broker, "filtered", "--count", "200")
        self._write_conf(name, settings)
        lines = "".join(f"{json.dumps(event)}\n" for event in events)
        (self._target / f"{name}.events.jsonl").write_text(lines, encoding="utf-8")
        rebuilt = harness.copy_store(store, self._scratch / f"{name}.rebuilt")
        for tree in QUEUE_TREES:
            shutil.rmtree(rebuilt / tree)
        with harness.Broker(version, rebuilt, settings):
            pass
        self._pack(name, store)
        self._pack(rebuilt.name, rebuilt, QUEUE_TREES)

    def _tiered(self, name: str, version: str) -> None:
        """A store with tiered storage in `tiered`: some messages are only there, some only in the log, some in both.

        One queue lost its last units in tiered storage, so that its messages were uploaded twice; another one lost its
        first file of messages, as after its time is over. Facts: what consumers of all messages, and `mqadmin`, got.
        """
        store = self._scratch / name
        settings = settings_of(
            version, TIERED_SETTINGS, {**TIMER_SETTINGS, "tieredStoreFilePath": str(store / "tiered")}
        )
        with harness.Broker(version, store, settings) as broker:
            harness.send(broker, "mixed", seed=40, count=20)
            harness.send(broker, "sequence", seed=41, count=240, body=60)
            _await_uploads(store)
        flat = next((store / "tiered").glob("*/broker"))
        last = max((flat / "SequenceDemo/1/CONSUME_QUEUE").iterdir(), key=lambda file: file.name[8:])
        os.truncate(last, last.stat().st_size - 3 * _UNIT.size)
        with harness.Broker(version, store, settings) as broker:
            harness.send(broker, "sequence", seed=41, first=240, count=30, body=60)
            _await_uploads(store)
        _expire_first(store, flat / "SequenceDemo/2/COMMIT_LOG")
        for segment in sorted((store / "commitlog").iterdir())[:5]:
            segment.unlink()
        with harness.Broker(version, store, {**settings, "tieredStoreGroupCommit": "true"}) as broker:
            harness.send(broker, "sequence", seed=41, first=270, count=15, body=60)
        self._write_conf(name, {**settings, "tieredStoreFilePath": "tiered"})
        facts = self._served(store, settings, version)
        lines = "".join(f"{json.dumps(fact, ensure_ascii=False)}\n" for fact in facts)
        (self._folder(name) / f"{name}.facts.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 9, mtime=0))
        self._pack(name, store)

    def _served(self, store: Path, settings: dict[str, str], version: str) -> Iterator[dict[str, Any]]:
        """What clients of a broker on a copy of a store get: offsets of queues, messages, and messages by key."""
        copy = harness.copy_store(store, self._scratch / f"{store.name}.served")
        settings = {**settings, "tieredStoreFilePath": str(copy / "tiered")}
        topics = sorted({path.name for path in (copy / "tiered").glob("*/broker/*") if path.name != "rmq_sys_INDEX"})
        with harness.Broker(version, copy, settings) as broker:
            for topic in topics:
                words = harness.mqadmin(broker, ["topicStatus", "-t", topic]).split("\n")
                for row in (line.split() for line in words if line.startswith("broker")):
                    yield {"t": "queue", "topic": topic, "queueId": int(row[1]), "min": int(row[2]), "max": int(row[3])}
                for message in harness.consume(broker, "GID_all", topic, 10_000):
                    yield {"t": "consumed", **message}
            for number in (5, 100, 200, 260):
                answer = harness.mqadmin(broker, ["queryMsgByKey", "-t", "SequenceDemo", "-k", f"s{number}"])
                rows = [line.split()[:3] for line in answer.split("\n")[1:] if line.strip()]
                yield {"t": "query", "topic": "SequenceDemo", "key": f"s{number}", "found": rows}

    def _pack_rebuilt(self, name: str, store: Path, settings: dict[str, str], version: str) -> None:
        """Pack what the Java store makes of the log and the configuration alone."""
        rebuilt = self._scratch / f"{name}.rebuilt"
        rebuilt.mkdir()
        for part in ("commitlog", "config"):
            shutil.copytree(store / part, rebuilt / part)
        harness.java_rebuild(rebuilt, settings, version)
        self._pack(rebuilt.name, rebuilt, _DERIVED)

    def describe(
        self, name: str, store: Path, settings: dict[str, str], version: str, more: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Write the settings of a broker, what the Java message store says of its store, and `more` facts."""
        self._write_conf(name, settings)
        facts = self._scratch / f"{name}.facts.jsonl"
        harness.describe(store, settings, facts, version)
        lines = "".join(f"{json.dumps(fact)}\n" for fact in more)
        packed = gzip.compress(lines.encode() + facts.read_bytes(), 9, mtime=0)
        (self._folder(name) / f"{name}.facts.jsonl.gz").write_bytes(packed)
        print(f"  {summary(facts)}")

    def _folder(self, name: str) -> Path:
        """Stores of versions, and of other forms, that only some tests read have folders of their own."""
        if name.startswith(("tiered", "f")) and not name.startswith("filtered"):
            return self._target / "forms"
        return self._target / "versions" if name.endswith("-550") else self._target

    def _write_conf(self, name: str, settings: dict[str, str]) -> None:
        conf = self._folder(name) / f"{name}.conf"
        conf.write_text("".join(f"{key}={settings[key]}\n" for key in sorted(settings)), encoding="utf-8")

    def _pack(self, name: str, store: Path, parts: tuple[str, ...] = (".",)) -> None:
        """Pack a store, or parts of it, with holes kept and file times to the nanosecond."""
        archive = self._folder(name) / f"{name}.tar.gz"
        members = [f"{name}/{part}" if part != "." else name for part in parts if (store / part).exists()]
        tar = ["tar", "--format=posix", "-S", "--hole-detection=raw", "--sort=name", "--numeric-owner"]
        tar += ["--owner=0", "--group=0", "--pax-option=delete=atime,delete=ctime"]
        tar += [f"--exclude={name}/{left_out}" for left_out in _UNPACKED]
        tar += ["-C", str(self._scratch), "-cf", "-", *members]
        packed = subprocess.run(tar, check=True, capture_output=True).stdout
        zipped = subprocess.run(["gzip", "-n", "-9"], input=packed, check=True, capture_output=True).stdout
        archive.write_bytes(zipped)
        print(f"  {archive.name}: {archive.stat().st_size} bytes")


def log_records(store: Path) -> Iterator[tuple[int, bytes]]:
    """Give offset and bytes of each record of a log, up to the first place that holds none."""
    for segment in sorted((store / "commitlog").iterdir()):
        data, position = segment.read_bytes(), 0
        while True:
            size, magic = struct.unpack_from(">iI", data, position)
            if magic not in (0xDAA320A7, 0xDAA320AB):
                break
            yield int(segment.name) + position, data[position : position + size]
            position += size


def flip_body_byte(store: Path, number: int) -> None:
    """Change one byte of the body of a log's record with that number."""
    offset, record = list(log_records(store))[number]
    segments = sorted((store / "commitlog").iterdir())
    segment = next(s for s in reversed(segments) if int(s.name) <= offset)
    body = 88
    with segment.open("r+b") as file:
        file.seek(offset - int(segment.name) + body)
        file.write(bytes([record[body] ^ 1]))


def _await_uploads(store: Path) -> None:
    """Wait until tiered storage has had nothing new for three rounds of uploads, at most five minutes."""

    def uploaded() -> int:
        return sum(file.stat().st_size for file in (store / "tiered").rglob("*") if file.is_file())

    size, idle = -1, 0
    for _ in range(30):
        time.sleep(10)
        idle = idle + 1 if size == uploaded() else 0
        size = uploaded()
        if size and idle >= 6:
            return
    raise harness.HarnessError(f"uploads to {store / 'tiered'} do not end")


def _expire_first(store: Path, folder: Path) -> None:
    """Delete the first file of a queue's messages in tiered storage, as `FlatAppendFile.destroyExpiredFile` does."""
    first = min(folder.iterdir(), key=lambda file: file.name[8:])
    first.unlink()
    metadata = store / "config" / "tieredStoreMetadata.json"
    content = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', metadata.read_text()))
    queue = "/".join(folder.parts[-4:-1])
    del content["commitLogFileSegmentTable"][queue][str(int(first.name[8:]))]
    metadata.write_text(json.dumps(content, separators=(",", ":")))


def _log_bytes(store: Path) -> int:
    if not (store / "commitlog").is_dir():
        return 0
    end = 0
    for offset, record in log_records(store):
        end = offset + len(record)
    return end


def _queue_end(store: Path) -> int:
    """End of the last message that any consume queue knows."""
    end = 0
    for file in (store / "consumequeue").rglob("0*"):
        if file.is_file():
            for offset, size, _ in _UNIT.iter_unpack(file.read_bytes()):
                end = max(end, offset + size)
    return end


def summary(facts: Path) -> dict[str, Any]:
    """Return the summary at the end of a file of facts."""
    found: dict[str, Any] = json.loads(facts.read_text(encoding="utf-8").splitlines()[-1])
    return found


def main() -> int:
    """Make the stores named on the command line, or every one, in the project's store directory."""
    lacking = harness.missing()
    if lacking is not None:
        print(lacking, file=sys.stderr)
        return 1
    for folder in ("versions", "forms"):
        (OWN_STORES / folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stores-") as scratch:
        recipes = StoreMaker(Path(scratch), OWN_STORES).recipes()
        names = sys.argv[1:] or list(recipes)
        unknown = set(names) - set(recipes)
        if unknown:
            print(f"no such store: {', '.join(sorted(unknown))}", file=sys.stderr)
            return 2
        for name in names:
            begin = time.monotonic()
            recipes[name]()
            print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

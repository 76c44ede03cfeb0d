"""States that a crash can leave of a store: ends of files that are lost, torn or old. And a plain reading of them.

The reading shares nothing with the package, except for the layout of bytes that it takes from `struct`. Records are cut
by their sizes in the store before it was damaged. In a damaged one, a message is there if its head and topic are.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_mq.testing.disk import FileContent, Unsynced
from spark_mq.testing.plain_log import Log
from spark_mq.testing.plain_queue import offsets_of

Queue = tuple[str, int]
_MAGICS = (-626843481, -626843477)
_UNIT_SIZE, _INDEX_HEADER_SIZE = 20, 40
_ENTRY = struct.Struct(">iqii")
_CHECKPOINT = struct.Struct(">qqqqqq")
_BLOCKS = [kind for kind in Unsynced if kind not in (Unsynced.NEW, Unsynced.ZEROS)]
_SAFETY_MILLIS = 3000
"""A recovery begins with a record so much older than the checkpoint (`StoreCheckpoint.getMinTimestamp`)."""


@dataclass(frozen=True)
class WrittenMessage:
    """A message of the log before the damage.

    Attributes:
        keys: The number of its index entries, without one for its tags.
    """

    offset: int
    size: int
    queue: Queue
    queue_offset: int
    data: bytes
    store_timestamp: int
    keys: int
    has_tags: bool


def _head(record: bytes) -> tuple[bytes, bytes, bytes]:
    """The first bytes up to the body, without the CRC, the topic, and the length of the properties."""
    (body,) = struct.unpack_from(">i", record, 84)
    at = 88 + max(body, 0)
    end = at + 1 + (record[at] if at < len(record) else 0)
    return record[:8] + record[12:88], record[at + 1 : end], record[end : end + 2]


def written_messages(store: Path) -> list[WrittenMessage]:
    """The messages of a log, up to the first place without a record. All have IPv4 hosts, and a unit."""
    found = []
    for file in sorted((store / "commitlog").iterdir()):
        data, at = file.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">ii", data, at)
            if magic not in _MAGICS:
                break
            record = data[at : at + size]
            queue_id, _, queue_offset, _, flags = struct.unpack_from(">iiqqi", record, 12)
            assert flags & 0xBC == 0, "a message of another kind"
            head = _head(record)
            end = 88 + struct.unpack_from(">i", record, 84)[0] + 1 + len(head[1])
            properties = dict(one.split(b"\1") for one in record[end + 2 :].split(b"\2") if one)
            keys = len(properties.get(b"KEYS", b"").split()) + (b"UNIQ_KEY" in properties)
            queue = head[1].decode(), queue_id
            (time,) = struct.unpack_from(">q", record, 56)
            has_tags = b"TAGS" in properties
            found.append(WrittenMessage(int(file.name) + at, size, queue, queue_offset, record, time, keys, has_tags))
            at += size
        else:
            continue
        if magic != -875286124:  # the blank at the end of a segment
            break
    return found


def left_messages(messages: list[WrittenMessage], store: Path) -> tuple[set[int], set[int]]:
    """The commit log offsets of the messages that are in the log of a damaged store, and of those with all bytes."""
    log = Log(store)
    records = {message.offset: log.read(message.offset, message.size) for message in messages}
    left = [one for one in messages if len(records[one.offset]) == one.size]
    are_there = {one.offset for one in left if _head(records[one.offset]) == _head(one.data)}
    return are_there, {one.offset for one in left if records[one.offset] == one.data}


def entries_in(file: Path, slots: int) -> Counter[int]:
    """The number of entries by commit log offset that the header of an index file counts; those of zeros were lost.

    A broker fills a file that was cut with zeros.
    """
    data = file.read_bytes()
    count = struct.unpack_from(">i", data, 36)[0] if len(data) >= _INDEX_HEADER_SIZE else 0
    start = _INDEX_HEADER_SIZE + 4 * slots
    data = data.ljust(start + count * _ENTRY.size, b"\0")
    places = range(start + _ENTRY.size, start + count * _ENTRY.size, _ENTRY.size)
    return Counter(_ENTRY.unpack_from(data, at)[1] for at in places if any(data[at : at + 12]))


@dataclass(frozen=True)
class StoreFiles:
    """What the files of a store have, by a plain reading.

    Attributes:
        inodes: The files of log, queues and index. One that is deleted and created again gets another inode.
        units: By queue, and queue offset, the commit log offset of each unit.
        entries: By index file, the number of entries by commit log offset.
    """

    inodes: Mapping[str, int]
    units: Mapping[Queue, Mapping[int, int]]
    entries: Mapping[str, Counter[int]]

    @classmethod
    def of(cls, store: Path, slots: int) -> StoreFiles:
        """The files of a store whose index files have so many slots."""
        folders = ("commitlog", "consumequeue", "index")
        files = [path for folder in folders for path in (store / folder).rglob("*") if path.is_file()]
        inodes = {str(path.relative_to(store)): path.stat().st_ino for path in files}
        entries = {path.name: entries_in(path, slots) for path in files if path.parent == store / "index"}
        return cls(inodes, offsets_of(store), entries)

    def deleted(self, later: StoreFiles) -> set[str]:
        """The files that are not in the same store later."""
        return {name for name, inode in self.inodes.items() if later.inodes.get(name) != inode}


# -- the model --------------------------------------------------------------------------------------------------------


def _tear(file: Path, start: int, stop: int, unsynced: Unsynced) -> None:
    """The bytes from `start` to `stop` were written last, and not confirmed: zeros were there before."""
    data = file.read_bytes()
    old = data[:start] + bytes(min(stop, len(data)) - start) + data[stop:]
    file.write_bytes(FileContent(data, 0).after(FileContent(old, 0), unsynced).data)


def _index_time(store: Path) -> int:
    """The end time of the last index file that was flushed, by the checkpoint; 0 without one."""
    file = store / "checkpoint"
    data = file.read_bytes() if file.exists() else b""
    return int.from_bytes(data[16:24], "big")


def _end_time(file: Path) -> int:
    """The end time in the header of an index file."""
    return int.from_bytes(file.read_bytes()[8:16], "big")


def _written(file: Path) -> int:
    return len(file.read_bytes().rstrip(b"\0"))


def _segments(store: Path) -> list[Path]:
    """The segments, without those that were created in advance."""
    return [file for file in sorted((store / "commitlog").iterdir()) if _written(file)]


def written_end(store: Path) -> int:
    """The commit log offset after the last byte of the log that is not 0, also while a broker writes; 0 without one."""
    segments = _segments(store) if (store / "commitlog").exists() else []
    return int(segments[-1].name) + _written(segments[-1]) if segments else 0


class CrashModel:
    """Makes states of a store that a crash could leave, at random."""

    def __init__(self, chance: random.Random, messages: list[WrittenMessage]) -> None:
        """The messages are those of the store before."""
        self._chance = chance
        self._messages = messages

    def crash(self, store: Path) -> str:
        """Change a store; returns how, as text."""
        chance, done = self._chance, []
        kinds: dict[Callable[[Path], str], int] = {
            self.tear_log: 6,
            self.lose_segments: 2,
            self.append_old_bytes: 2,
            self.tear_queues: 6,
            self.lose_queue_files: 2,
            self.tear_index: 4,
            self.change_checkpoint: 6,
            self.add_empty_file: 1,
            self.cut_file: 1,
        }
        for kind in chance.choices(list(kinds), list(kinds.values()), k=chance.randint(1, 4)):
            done.append(kind(store))
        abort = store / "abort"
        if chance.random() < 0.6:
            abort.touch()
        else:
            abort.unlink(missing_ok=True)
            done.append("no abort")
        return "; ".join(done)

    def tear_log(self, store: Path) -> str:
        """The end of the log, or a part near it, is lost or torn."""
        chance, segments = self._chance, _segments(store)
        if not segments:
            return "no segment"
        file = segments[-min(chance.choice([1, 1, 1, 1, 2, 3]), len(segments))]
        written, unsynced = _written(file), chance.choice(_BLOCKS)
        bases = [message.offset - int(file.name) for message in self._messages]
        starts = [at for at in bases if 0 <= at < written] or [0]
        start = max(chance.choice(starts[-60:]) + chance.choice([0, 0, 4, 60, 100, 150]), 0)
        stop = written if chance.random() < 0.7 else min(start + chance.choice([200, 1000, 6000]), written)
        if start < stop:
            _tear(file, start, stop, unsynced)
        for later in segments[segments.index(file) + 1 :]:
            if chance.random() < 0.6:
                _tear(later, 0, _written(later), chance.choice(_BLOCKS))
        return f"{file.name} from {start} to {stop}: {unsynced}"

    def lose_segments(self, store: Path) -> str:
        """The last segments, or the first, were not there yet, or only their size was."""
        chance, files = self._chance, sorted((store / "commitlog").iterdir())
        if len(files) < 3:
            return "few segments"
        lost = files[-chance.choice([1, 1, 2]) :] if chance.random() < 0.8 else files[:1]
        for file in lost:
            if chance.random() < 0.6:
                file.unlink()
            else:
                file.write_bytes(bytes(file.stat().st_size))
        return f"segments lost: {', '.join(file.name for file in lost)}"

    def append_old_bytes(self, store: Path) -> str:
        """After the end of the log are bytes of other records, as on a disk whose file was not cleared."""
        chance, segments = self._chance, _segments(store)
        if not segments:
            return "no segment"
        file = segments[-1]
        data, end = bytearray(file.read_bytes()), _written(file)
        size, start = chance.choice([1, 8, 100, 700, 4096]), chance.randrange(max(end, 1))
        old = data[start : start + size] if chance.random() < 0.7 else chance.randbytes(size)
        data[end : end + len(old)] = old
        file.write_bytes(data[: file.stat().st_size])
        return f"{size} old bytes after the end of the log"

    def tear_queues(self, store: Path) -> str:
        """The last units of queues are lost or torn."""
        chance, queues = self._chance, sorted((store / "consumequeue").glob("*/*"))
        for queue in [queue for queue in queues if chance.random() < 0.5]:
            files = [file for file in sorted(queue.iterdir()) if _written(file)]
            if not files:
                continue
            file = files[-min(chance.choice([1, 1, 1, 2, 4]), len(files))]
            written = _written(file)
            start = max(written - chance.randrange(1, 30) * _UNIT_SIZE, 0) // _UNIT_SIZE * _UNIT_SIZE
            start = min(start + chance.choice([0, 0, 0, 8, 12]), written)  # the last unit can be torn already
            _tear(file, start, written, chance.choice(_BLOCKS))
            for later in files[files.index(file) + 1 :]:
                if chance.random() < 0.7:
                    later.write_bytes(bytes(later.stat().st_size))
        return "queues torn"

    def lose_queue_files(self, store: Path) -> str:
        """The last file of a queue, a queue or a topic is lost."""
        chance = self._chance
        if not (queues := sorted((store / "consumequeue").glob("*/*"))):
            return "no queue"
        queue = chance.choice(queues)
        files = sorted(queue.iterdir())
        if files and chance.random() < 0.4:
            files[-1].unlink()
            return f"{files[-1].relative_to(store)} lost"
        lost = chance.choice([queue, queue.parent])
        shutil.rmtree(lost)
        return f"{lost.relative_to(store)} lost"

    def tear_index(self, store: Path) -> str:
        """The last index files are lost or torn."""
        chance, flushed = self._chance, _index_time(store)
        files = [file for file in sorted((store / "index").glob("*")) if _end_time(file) > flushed]
        if not files:
            return "all index files are flushed"
        file, kind = files[-min(chance.choice([1, 1, 2]), len(files))], chance.choice(["tear", "tear", "lost", "head"])
        if kind == "lost":
            file.unlink()
        elif kind == "head":
            _tear(file, 0, _INDEX_HEADER_SIZE, Unsynced.OLD)
        else:
            written = _written(file)
            _tear(file, chance.randrange(written + 1), written, chance.choice(_BLOCKS))
        return f"{file.relative_to(store)}: {kind}"

    def change_checkpoint(self, store: Path) -> str:
        """The checkpoint is of another moment, or lost."""
        chance, file = self._chance, store / "checkpoint"
        kind = chance.choice(["older", "older", "older", "older", "lost", "zeros", "cut"])
        data = file.read_bytes().ljust(4096, b"\0") if file.exists() else bytes(4096)
        file.unlink(missing_ok=True)
        if kind == "zeros":
            file.write_bytes(bytes(4096))
        elif kind == "cut":
            file.write_bytes(data[: chance.choice([0, 10, 24, 512])])
        elif kind == "older":
            had = _CHECKPOINT.unpack_from(data)
            others = chance.choices(self._messages, k=5)
            moments = zip(had, others[:2], strict=False)
            times = [chance.choice([0, old, other.store_timestamp + _SAFETY_MILLIS]) for old, other in moments]
            times.append(chance.choice([0, had[2]]))  # a broker sets it after it has flushed a file
            offsets = [chance.choice([0, old, other.offset]) for old, other in zip(had[3:], others[2:], strict=True)]
            file.write_bytes(_CHECKPOINT.pack(*times, *offsets) + data[_CHECKPOINT.size :])
        return f"checkpoint: {kind}"

    def add_empty_file(self, store: Path) -> str:
        """A file was created whose size was not written, or only its size."""
        chance = self._chance
        folders = [store / "commitlog", *sorted((store / "consumequeue").glob("*/*"))]
        folder = chance.choice(folders)
        files = sorted(folder.iterdir())
        if not files:
            return "no file"
        size = files[-1].stat().st_size
        added = folder / f"{int(files[-1].name) + size:020d}"
        added.write_bytes(bytes(chance.choice([0, size])))
        return f"{added.relative_to(store)} added"

    def cut_file(self, store: Path) -> str:
        """A file is shorter than it was."""
        chance = self._chance
        files = [path for name in ("commitlog", "consumequeue", "index") for path in (store / name).rglob("*")]
        file = chance.choice(sorted(path for path in files if path.is_file()))
        size = chance.randrange(file.stat().st_size + 1)
        os.truncate(file, size)
        return f"{file.relative_to(store)} cut to {size} bytes"

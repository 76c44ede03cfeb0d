"""A store that is written as a broker writes it: through memory maps, which change no time of a file.

The kernel sets the times of a file when a page of its map is written for the first time after the page was clean. A
broker that appends to a page again and again changes no time until the page reaches the disk, and on tmpfs not even
then. All files have their full size from the start. `MappedStore` is the worst case: `times` gives each file of the log
and of the queues one time for as long as it exists. `abort`, `lock` and other files are written by calls of the system.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spark_mq.format.consume_queue import UNIT, UNIT_SIZE
from spark_mq.format.record import Record, encode_blank
from spark_mq.io.location import Location
from spark_mq.store.store_lock import store_lock

SEGMENT_SIZE = 8 << 10
UNITS_PER_FILE = 8
START = 1_700_000_000_000


@dataclass
class FrozenTimes:
    """The module `os` for `store.store_lock`: the times of a file change only if `changed` is called."""

    count: int = 0
    times: dict[str, int] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def changed(self, path: Path) -> None:
        """Give a file a new time, as a call that writes or creates it does."""
        self.count += 1
        self.times[str(path)] = self.count

    def stat(self, path: str) -> SimpleNamespace:
        """The state of a file, with the times of this object."""
        real, time = os.stat(path), self.times.get(path, 0)
        return SimpleNamespace(
            st_dev=real.st_dev, st_ino=real.st_ino, st_size=real.st_size, st_mtime_ns=time, st_ctime_ns=time
        )


@dataclass(frozen=True)
class Message:
    """A record of the log."""

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int


class MappedStore:
    """A store and its broker. `messages` are the live ones; those before `dispatched` have units."""

    def __init__(self, folder: Path, times: FrozenTimes) -> None:
        self.folder = folder
        self.times = times
        self.messages: list[Message] = []
        self.dispatched = 0
        self.end = 0
        self.now = START
        self._is_stale_after_end = False
        self._is_cut_while_running = False
        self._expired: dict[tuple[str, int], int] = {}
        self._flushed = 0
        self._running: ExitStack | None = None
        folder.mkdir()
        self._put(folder / "checkpoint", bytes(4096))

    @property
    def is_end_told(self) -> bool:
        """Whether the files show where the log ends.

        Truncated records can follow the end. That they are older than the last record proves nothing, because a clock
        can be set back.
        """
        return not self._is_stale_after_end

    def undispatched(self, log_end: int) -> int:
        """Bytes at the end of the log that are not dispatched, for a reader that finds the end at `log_end`.

        Truncated records at the end count, too, if no start of the broker tells of them.
        """
        is_any = self.dispatched < len(self.messages)
        first = self.messages[self.dispatched].offset if is_any else self.end
        return max((log_end if self._is_cut_while_running else self.end) - first, 0)

    @property
    def is_running(self) -> bool:
        """Whether the broker runs."""
        return self._running is not None

    def start(self, lost: int = 0) -> None:
        """Start the broker. It finds that the last `lost` messages are not whole, and truncates them."""
        self.now += 20_000
        self.truncate(lost)
        self._is_cut_while_running = False
        self._running = ExitStack()
        self._running.enter_context(store_lock(Location.resolve(str(self.folder))))
        self._put(self.folder / "lock", b"lock")
        self._put(self.folder / "abort", b"1")
        os.utime(self.folder / "abort", ns=(self.now * 10**6,) * 2)
        self.dispatch(len(self.messages))

    def kill(self) -> None:
        """End the broker at once."""
        assert self._running is not None
        self._running.close()
        self._running = None

    def stop(self) -> None:
        """Stop the broker cleanly."""
        self.dispatch(len(self.messages))
        self._map(self.folder / "checkpoint", 0, struct.pack(">qq", self._flushed, self._flushed))
        (self.folder / "abort").unlink()
        self.kill()

    def append(self, topic: str, queue_id: int, body_size: int) -> None:
        """Append a message to the log; it has no unit yet."""
        self.now += 7
        queue_offset = sum((message.topic, message.queue_id) == (topic, queue_id) for message in self.messages)
        queue_offset += self._expired.get((topic, queue_id), 0)

        def record() -> Record:
            return Record(
                topic.encode(),
                queue_id=queue_id,
                queue_offset=queue_offset,
                commit_log_offset=self.end,
                body=f"{self.now}".encode().ljust(body_size, b"x"),
                properties=b"TAGS\1a\2",
                born_timestamp=self.now,
                store_timestamp=self.now,
            )

        left = SEGMENT_SIZE - self.end % SEGMENT_SIZE
        if record().size + 8 > left:
            self._write(self.end, encode_blank(left))
            self.end += left
        data = record().encode()
        self._write(self.end, data)
        self.messages.append(Message(self.end, len(data), topic, queue_id, queue_offset))
        self.end += len(data)
        self._flushed = self.now

    def dispatch(self, count: int) -> None:
        """Write the units of the next `count` messages."""
        for message in self.messages[self.dispatched : self.dispatched + count]:
            self._unit(message, UNIT.pack(message.offset, message.size, 97))
        self.dispatched = min(self.dispatched + count, len(self.messages))

    def truncate(self, lost: int) -> None:
        """Forget the last messages, as a replica does without a start. Their bytes and their units remain."""
        lost = min(lost, len(self.messages) - 1)
        if lost > 0:
            self.end = self.messages[-lost].offset
            del self.messages[-lost:]
            self.dispatched = min(self.dispatched, len(self.messages))
            self._is_stale_after_end = self._is_cut_while_running = True

    def expire(self) -> None:
        """Delete the first segment, unless it is the last one."""
        segments = sorted((self.folder / "commitlog").iterdir())
        if len(segments) > 1 and self.end > int(segments[1].name):
            start = int(segments[1].name)
            gone = [message for message in self.messages if message.offset < start]
            if len(gone) == len(self.messages) or self.dispatched < len(gone):
                return
            segments[0].unlink()
            for message in gone:
                name = message.topic, message.queue_id
                self._expired[name] = self._expired.get(name, 0) + 1
            del self.messages[: len(gone)]
            self.dispatched -= len(gone)

    def lose_unit(self, number: int) -> None:
        """Write zeros over the unit of a message, as another program does: by a call of the system."""
        if number < self.dispatched:
            self.times.changed(self._unit(self.messages[number], bytes(UNIT_SIZE)))

    def replace(self, number: int) -> None:
        """Put a copy in the place of a queue file or a segment, with another inode or the same one, and the times."""
        files = sorted(path for tree in ("commitlog", "consumequeue") for path in (self.folder / tree).rglob("0*"))
        files = [file for file in files if file.is_file()]
        file = files[number % len(files)]
        shutil.copy2(file, file.with_name("copy"))
        os.replace(file.with_name("copy"), file)
        self.times.changed(file)

    def _unit(self, message: Message, data: bytes) -> Path:
        number, index = divmod(message.queue_offset, UNITS_PER_FILE)
        folder = self.folder / "consumequeue" / message.topic / str(message.queue_id)
        file = folder / f"{number * UNITS_PER_FILE * UNIT_SIZE:020d}"
        self._map(file, index * UNIT_SIZE, data, UNITS_PER_FILE * UNIT_SIZE)
        return file

    def _write(self, offset: int, data: bytes) -> None:
        base = offset // SEGMENT_SIZE * SEGMENT_SIZE
        self._map(self.folder / "commitlog" / f"{base:020d}", offset - base, data, SEGMENT_SIZE)

    def _map(self, file: Path, position: int, data: bytes, size: int = 0) -> None:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            self._put(file, bytes(size))
        with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
            mapped[position : position + len(data)] = data

    def _put(self, file: Path, data: bytes) -> None:
        file.write_bytes(data)
        self.times.changed(file)

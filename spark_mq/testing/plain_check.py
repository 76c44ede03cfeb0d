"""What a check must find in a damaged store, told in plain Python over the original bytes and the facts.

The oracle compares bytes with those that the broker wrote, one record, unit, slot or entry after the other. It knows
the list of unseen fields (`spark_mq/verifier/code_page.py`) as rules over decoded values, and not how a check works.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from spark_mq.errors import CorruptLogError
from spark_mq.format.properties import parse_properties
from spark_mq.format.record import Record, decode_record
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.testing.corpus import RealStore
from spark_mq.testing.plain_log import has_right_body_crc

_PREPARED, _ROLLBACK = 0x4, 0xC
_INDEXED = (b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY")


@dataclass(frozen=True)
class Oracle:
    """The original store: its files, and what the Java store said of them. It is sound, and nothing has expired."""

    packed: RealStore
    original: Path

    def visible_changes(self, damaged: Path) -> list[str]:
        """The changes that a check must find, as text; an empty list if all changes are in unseen fields."""
        return list(self._visible(damaged))

    def _visible(self, damaged: Path) -> Iterator[str]:
        for folder in ("commitlog", "consumequeue", "index"):
            can_have_expired = folder == "commitlog"
            for path, before in self._files(folder):
                file = self.original / path
                can_have_expired = can_have_expired and not (damaged / path).exists()
                if can_have_expired:
                    continue
                after = (damaged / path).read_bytes() if (damaged / path).is_file() else b""
                if len(before) != len(after):
                    yield f"{path}: {len(after)} bytes"
                elif before != after:
                    check = {"commitlog": self._log, "consumequeue": self._queue, "index": self._index}[folder]
                    yield from (f"{path}: {change}" for change in check(file, before, after))
        if (damaged / "checkpoint").exists():
            yield from self._checkpoint((damaged / "checkpoint").read_bytes())

    @cache  # noqa: B019 - oracles are few
    def _files(self, folder: str) -> list[tuple[str, bytes]]:
        """The files of a folder by relative path, sorted, without those of a database."""
        files = sorted(path for path in (self.original / folder).rglob("*") if path.is_file() and path.name.isdigit())
        return [(str(file.relative_to(self.original)), file.read_bytes()) for file in files]

    @cached_property
    def _settings(self) -> dict[str, str]:
        return BrokerConf.of(str(self.packed.broker_conf)).settings

    def _log(self, file: Path, before: bytes, after: bytes) -> Iterator[str]:
        base = int(file.name)
        for fact in self.packed.facts("msg"):
            at, size = fact["offset"] - base, fact["size"]
            if 0 <= at < len(before) and before[at : at + size] != after[at : at + size]:
                old = decode_record(before, at)
                try:
                    new = decode_record(after, at, fact["offset"])
                except CorruptLogError:
                    yield f"no record at {at}"
                    continue
                if (change := _visible_change(old, new)) is not None:
                    yield f"{change} at {at}"
        for fact in self.packed.facts("blank"):
            at = fact["offset"] - base
            if 0 <= at < len(before) and before[at : at + 8] != after[at : at + 8]:
                yield f"filler at {at}"

    def _queue(self, file: Path, before: bytes, after: bytes) -> Iterator[str]:
        for at in range(0, len(before), 20):
            if before[at : at + 20] != after[at : at + 20]:
                yield f"unit at {at}"

    def _index(self, file: Path, before: bytes, after: bytes) -> Iterator[str]:
        slots, entries = int(self._settings["maxHashSlotNum"]), 40 + 4 * int(self._settings["maxHashSlotNum"])
        (count,) = struct.unpack_from(">i", before, 36)
        if count > 1:
            for at, width in ((0, 8), (8, 8), (16, 8), (24, 8), (32, 4), (36, 4)):
                is_old_count = at == 32 and after[32:36] == struct.pack(">i", count - 1)
                if before[at : at + width] != after[at : at + width] and not is_old_count:
                    yield f"header at {at}"
        for slot in range(slots):
            at = 40 + 4 * slot
            if before[at : at + 4] != after[at : at + 4]:
                yield f"slot at {at}"
        for number in range(1, (len(before) - entries) // 20):
            at = entries + 20 * number
            if number != max(count, 1) and before[at : at + 20] != after[at : at + 20]:
                yield f"entry at {at}"

    def _checkpoint(self, after: bytes) -> Iterator[str]:
        if len(after) != 4096:
            yield f"checkpoint: {len(after)} bytes"
        newest = max(fact["storeTimestamp"] for fact in self.packed.facts("msg"))
        (end,) = {fact["maxPhyOffset"] for fact in self.packed.facts("store")}
        values = struct.unpack(">qqqqq", after.ljust(40, b"\0")[:40])
        for number, limit in ((0, newest), (1, newest), (2, newest), (4, end)):
            if values[number] > limit or (number < 3 and values[number] < 0):
                yield f"checkpoint: field {number}"


def _visible_change(old: Record, new: Record) -> str | None:
    """The first field that differs, and that a check sees."""
    if old.size != new.size or old.magic != new.magic or len(old.topic) != len(new.topic):
        return "size or magic"
    has_unit = old.sys_flag & 0xC not in (_PREPARED, _ROLLBACK)
    has_keys = bool({b"KEYS", b"UNIQ_KEY"} & set(parse_properties(old.properties)))
    if old.topic != new.topic and (has_unit or (has_keys and old.sys_flag & 0xC != _ROLLBACK)):
        return "topic"
    if has_unit != (new.sys_flag & 0xC not in (_PREPARED, _ROLLBACK)):
        return "transaction type"
    if (old.sys_flag ^ new.sys_flag) & ~0x7FF or (old.sys_flag ^ new.sys_flag) & 0xB0:
        return "sysFlag"
    if has_unit and (old.queue_id, old.queue_offset) != (new.queue_id, new.queue_offset):
        return "queue"
    if not has_right_body_crc(new):
        return "body"
    if new.sys_flag & 1 and new.body and not _begins_as(new):
        return "compression"
    # The unit of a delayed message has the due time, and that of any other message the hash of its tags.
    other = b"TAGS" if old.topic == b"SCHEDULE_TOPIC_XXXX" else b"DELAY"
    names = [name for name in _INDEXED if name != other] if old.sys_flag & 0xC != _ROLLBACK else []
    before, after = parse_properties(old.properties), parse_properties(new.properties)
    if has_unit and any(before.get(name) != after.get(name) for name in names):
        return "keys or tags"
    pieces = new.properties.split(b"\2")
    if any(piece.find(b"\1") < 1 for piece in (pieces if pieces[-1] else pieces[:-1])):
        return "properties"
    return None


def _begins_as(record: Record) -> bool:
    kind = record.sys_flag >> 8 & 7
    heads = {0: b"\x78", 1: b"\x04\x22\x4d\x18", 2: b"\x28\xb5\x2f\xfd", 3: b"\x78"}
    return kind in heads and len(record.body) >= 4 and record.body.startswith(heads[kind])

"""The page about the files of a store: tables out of the code that reads them, and pictures of a real broker's bytes.

`python -m tests.support.format_page` writes `docs/store-format.md` again.
"""

from __future__ import annotations

import inspect
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from spark_mq.format import consume_queue, consume_queue_ext, index_file, message_row, properties, record
from spark_mq.format.broker_version import version_rules
from spark_mq.format.record import Record, decode_record
from spark_mq.store.config import checkpoint
from tests.support.index_stores import index_files, layout_of
from tests.support.stores import OWN_STORES, PROJECT, WORKLOAD, RealStore

PAGE = PROJECT / "docs" / "store-format.md"
_MADE = re.compile(r"(<!-- made: ([\w ]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
_TABLE = re.compile(r"^\|.+\n(?:^\|.+\n?)+", re.MULTILINE)
_MOST_BYTES = 16
"""A longer field is shown by its first bytes."""

Field = tuple[str, int, str]
"""The name of a field, its size in bytes, and what its bytes say."""


def page(text: str) -> str:
    """The text of the page, with all parts that are made between its marks."""
    with TemporaryDirectory() as folder:
        parts = _Parts(Path(folder))
        return _MADE.sub(lambda found: f"{found[1]}\n{parts.of(found[2])}\n{found[3]}", text)


class _Parts:
    """The parts of the page, by name."""

    def __init__(self, folder: Path) -> None:
        self._store = WORKLOAD.unpack(folder)
        self._filtered = RealStore("filtered-533", OWN_STORES).unpack(folder)
        self._newest = RealStore("workload-550", OWN_STORES / "versions").unpack(folder)
        facts = WORKLOAD.facts("msg")
        self._fact = next(fact for fact in facts if fact["topic"] == "OrderEvents" and not fact["sysFlag"])
        self._fillers = WORKLOAD.facts("blank")
        self._bytes = self._log(self._fact["offset"], self._fact["size"])
        self._record = decode_record(self._bytes)
        self._index = self._index_file_of_key()

    def of(self, name: str) -> str:
        parts: dict[str, Callable[[], str]] = {
            "record fields": lambda: _table(record, 0),
            "record flags": lambda: _table(record, 1),
            "record bytes": lambda: _picture(self._bytes, _record_fields(self._record)),
            "properties": self._properties,
            "filler bytes": self._filler,
            "message id": self._message_id,
            "unit fields": lambda: _table(consume_queue, 0),
            "unit bytes": self._unit,
            "extension fields": lambda: _table(consume_queue_ext, 0),
            "batch unit fields": lambda: _table(consume_queue, 1),
            "inner batch fields": lambda: _table(message_row, 0),
            "extension bytes": self._extension,
            "index fields": lambda: _table(index_file, 0),
            "index entry fields": lambda: _table(index_file, 1),
            "index bytes": self._index_bytes,
            "checkpoint fields": lambda: _table(checkpoint, 0),
            "checkpoint bytes": self._checkpoint,
            "versions": lambda: "\n".join(_versions()),
        }
        return parts[name]()

    def _log(self, offset: int, size: int) -> bytes:
        """The bytes of the log at an offset."""
        segment = max(path for path in (self._store / "commitlog").iterdir() if int(path.name) <= offset)
        return segment.read_bytes()[offset - int(segment.name) :][:size]

    def _properties(self) -> str:
        pairs = properties.parse_properties(self._record.properties)
        text = self._record.properties.decode().replace("\x01", "\u2401").replace("\x02", "\u2402")
        rows = [f"| `{name.decode()}` | `{value.decode()}` |" for name, value in pairs.items()]
        heading = (
            f"Those of the message above, with \u2401 and \u2402 for the bytes 0x01 and 0x02:\n\n```text\n{text}\n```\n"
        )
        return "\n".join([heading, "| name | value |", "| --- | --- |", *rows])

    def _filler(self) -> str:
        fact = self._fillers[0]
        data = self._log(fact["offset"], fact["size"])
        size, _ = struct.unpack_from(">ii", data)
        left = len(data) - 8
        return _picture(data, [("bytes left", 4, str(size)), ("magic", 4, "a filler"), ("not used", left, "")])

    def _message_id(self) -> str:
        found = self._fact["msgId"]
        host, offset = found[:-16], found[-16:]
        lines = [f"{host}                  store host", f"{offset:>{len(host) + 16}}  commit log offset"]
        return "\n".join(["```text", found, *lines, "```"])

    def _unit(self) -> str:
        topic, queue, number = (self._fact[name] for name in ("topic", "queueId", "queueOffset"))
        folder = self._store / "consumequeue" / topic / str(queue)
        data = _at(folder, number * consume_queue.UNIT_SIZE, consume_queue.UNIT_SIZE)
        offset, size, tags_code = consume_queue.UNIT.unpack(data)
        assert (offset, size) == (self._fact["offset"], self._fact["size"])
        tags = f"{tags_code}, hashCode of {self._fact['tags']!r}"
        names = [("commit log offset", 8, str(offset)), ("store size", 4, str(size)), ("tags code", 8, tags)]
        return _picture(data, names)

    def _extension(self) -> str:
        files = sorted((self._filtered / "consumequeue_ext").glob("*/*/*"))
        units = (consume_queue_ext.parse_unit(file.read_bytes()) for file in files)
        unit = next(unit for unit in units if unit and unit.bit_map)
        names = [
            ("size", 2, str(unit.size)),
            ("tags code", 8, str(unit.tags_code)),
            ("store time", 8, str(unit.store_timestamp)),
            ("bytes of the bit map", 2, str(len(unit.bit_map))),
            ("bit map", len(unit.bit_map), "the groups whose filter is TRUE for the message"),
        ]
        return _picture(unit.encode(), names)

    def _index_file_of_key(self) -> tuple[bytes, index_file.IndexLayout, int, str]:
        """The first file with an entry of the message's first key: its bytes, layout, the entry's number, the key."""
        key = self._fact["keys"].split()[0]
        wanted = index_file.index_key_hash(self._record.topic, key.encode())
        layout = layout_of(WORKLOAD)
        for path in index_files(self._store):
            data = path.read_bytes()
            entries = index_file.read_entries(data, layout, path.name)
            hits = (entries["key_hash"] == wanted) & (entries["commit_log_offset"] == self._fact["offset"])
            if hits.any():
                return data, layout, int(hits.argmax()) + 1, key
        raise AssertionError("no index file has the message")

    def _index_bytes(self) -> str:
        data, layout, number, key = self._index
        begin, end, first, last, slots, count = index_file.HEADER.unpack_from(data)
        header: list[Field] = [
            ("begin timestamp", 8, str(begin)),
            ("end timestamp", 8, str(end)),
            ("begin offset", 8, str(first)),
            ("end offset", 8, str(last)),
            ("slots with an entry", 4, str(slots)),
            ("index count", 4, f"{count}: {count - 1} entries"),
        ]
        at = index_file.HEADER_SIZE + index_file.SLOT_SIZE * layout.hash_slot_num + index_file.ENTRY_SIZE * number
        key_hash, offset, seconds, previous = index_file.ENTRY.unpack_from(data, at)
        entry: list[Field] = [
            ("key hash", 4, f"{key_hash}: {self._fact['topic']}#{key}, slot {key_hash % layout.hash_slot_num}"),
            ("commit log offset", 8, str(offset)),
            ("seconds after begin", 4, str(seconds)),
            ("entry before", 4, f"{previous}, in the same slot"),
        ]
        size = index_file.ENTRY_SIZE
        return f"{_picture(data[: index_file.HEADER_SIZE], header)}\n\n{_picture(data[at : at + size], entry, at)}"

    def _checkpoint(self) -> str:
        data = (self._newest / "checkpoint").read_bytes()[:48]
        names = re.findall(r"^\| \d+ \| (\w+)", _table(checkpoint, 0), re.MULTILINE)[:6]
        numbers = struct.unpack(">qqqqqq", data)
        return _picture(data, [(name, 8, str(number)) for name, number in zip(names, numbers, strict=True)])


def _table(module: ModuleType, number: int) -> str:
    """The table with this number in the docstring of a module."""
    tables: list[str] = _TABLE.findall(inspect.getdoc(module) or "")
    return tables[number].rstrip()


def _picture(data: bytes, fields: Iterable[Field], start: int = 0) -> str:
    """A line for each field of some bytes: where it is, its bytes, its name, and what they say."""
    lines, at = ["```text", f"{'at':>6}  {'bytes':47}  field"], 0
    for name, size, said in fields:
        shown = data[at : at + min(size, _MOST_BYTES)].hex(" ")
        more = f" ({size} bytes)" if size > _MOST_BYTES else ""
        lines.append(f"{start + at:>6}  {shown:47}  {name}{more}{': ' if said else ''}{said}")
        at += size
    assert at == len(data), f"the fields have {at} bytes of {len(data)}"
    return "\n".join([*lines, "```"])


def _record_fields(one: Record) -> Iterator[Field]:
    born, stored = (".".join(map(str, host[:4])) for host in (one.born_host, one.store_host))
    ports = [int.from_bytes(host[4:], "big") for host in (one.born_host, one.store_host)]
    yield from (
        ("total size", 4, str(one.size)),
        ("magic", 4, "version 1"),
        ("body CRC", 4, str(one.body_crc)),
        ("queue id", 4, str(one.queue_id)),
        ("flag", 4, str(one.flag)),
        ("queue offset", 8, str(one.queue_offset)),
        ("commit log offset", 8, str(one.commit_log_offset)),
        ("sysFlag", 4, str(one.sys_flag)),
        ("born timestamp", 8, str(one.born_timestamp)),
        ("born host", 8, f"{born}:{ports[0]}"),
        ("store timestamp", 8, str(one.store_timestamp)),
        ("store host", 8, f"{stored}:{ports[1]}"),
        ("reconsume times", 4, str(one.reconsume_times)),
        ("prepared transaction offset", 8, str(one.prepared_transaction_offset)),
        ("body length", 4, str(len(one.body))),
        ("body", len(one.body), ""),
        ("topic length", 1, str(len(one.topic))),
        ("topic", len(one.topic), one.topic.decode()),
        ("properties length", 2, str(len(one.properties))),
        ("properties", len(one.properties), "see below"),
    )


def _versions() -> Iterator[str]:
    yield from ("| version | what a broker does from it on | source |", "| --- | --- | --- |")
    since = [rule for rule in version_rules().values() if rule.since]
    for rule in sorted(since, key=lambda rule: rule.since or 0):
        yield f"| {rule.since} | {rule.meaning} | `{rule.source.replace(', ', '`, `')}` |"
    for rule in version_rules().values():
        if rule.until:
            yield f"| before {rule.until} | {rule.meaning} | `{rule.source}` |"


def _at(folder: Path, position: int, size: int) -> bytes:
    """Bytes of a folder of mapped files."""
    file = max(path for path in folder.iterdir() if int(path.name) <= position)
    return file.read_bytes()[position - int(file.name) :][:size]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

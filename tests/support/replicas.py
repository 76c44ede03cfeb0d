"""Two replicas of one log: copies of a broker's store, of which a test changes one or both."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

from spark_mq.format.record import BLANK_SIZE, Record, decode_record, encode_blank
from tests.support.stores import Fact
from tests.support.verified import Bench


def log_of(store: Path) -> dict[str, bytes]:
    """The bytes of all segments."""
    return {file.name: file.read_bytes() for file in sorted((store / "commitlog").iterdir()) if file.is_file()}


def live_end(bench: Bench) -> int:
    (end,) = (int(fact["maxPhyOffset"]) for fact in bench.packed.facts("store"))
    return end


def messages_from(bench: Bench, offset: int) -> list[Fact]:
    return sorted((fact for fact in bench.messages if fact["offset"] >= offset), key=lambda fact: int(fact["offset"]))


def part_at(bench: Bench, offset: int, skipped: int = 1) -> None:
    """Let the log of a store go on with other messages at an offset: those that follow, without the first ones."""
    size, position = bench.setting("mappedFileSizeCommitLog"), offset
    records = [bench.record(int(fact["offset"])) for fact in messages_from(bench, offset)][skipped:]
    for number in range(offset // size + 1, live_end(bench) // size + 1):
        (bench.path / f"commitlog/{number * size:020d}").write_bytes(bytes(size))
    file, at = bench.segment(offset)
    bench.write(file, at, bytes(size - at))
    for record in records:
        moved = replace(record, commit_log_offset=position).encode()
        file, at = bench.segment(position)
        if size - at < len(moved) + BLANK_SIZE:
            bench.write(file, at, encode_blank(size - at))
            return
        bench.write(file, at, moved)
        position += len(moved)


def rewritten(bench: Bench, offset: int, **values: object) -> Record:
    """Write a record again, with other values, at its place."""
    changed = replace(bench.record(offset), **values)  # type: ignore[arg-type]
    file, at = bench.segment(offset)
    bench.write(file, at, changed.encode())
    assert decode_record(changed.encode()).size == changed.size
    return changed


def blank_after_last_record(bench: Bench, segment: int) -> tuple[str, int]:
    """The blank at the end of a segment: the file, and the position at which it starts."""
    size = bench.setting("mappedFileSizeCommitLog")
    last = max(int(fact["offset"]) for fact in bench.messages if fact["offset"] < (segment + 1) * size)
    file, at = bench.segment(last)
    at += bench.record(last).size
    assert struct.unpack(">ii", bench.read(file, at, 8)) == (size - at, -875286124)
    return file, at

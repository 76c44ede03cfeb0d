"""Copies of a store with parts removed: what a reader must not take for a store in which nothing more happened."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random


def copies_without_parts(store: Path, folder: Path, cases: int) -> Iterator[tuple[Path, list[str]]]:
    """Copies of a store, one after the other, each without other parts; and what was done to each."""
    for seed in range(cases):
        copy = Path(shutil.copytree(store, folder / "copy"))
        yield copy, [f"seed {seed}", *remove_parts(copy, Random(seed))]
        shutil.rmtree(copy)


def remove_parts(store: Path, random: Random, count: int = 2) -> list[str]:
    """Remove or damage some parts of a store; returns what was done."""
    return [random.choice(_REMOVALS)(store, random) for _ in range(random.randint(1, count))]


def _config_file(store: Path, random: Random) -> str:
    names = sorted(file.name for file in (store / "config").iterdir() if file.suffix != ".bak")
    if not names:
        return "no config"
    name = random.choice(names)
    for file in (store / "config" / name, store / "config" / f"{name}.bak"):
        file.unlink(missing_ok=True)
    return f"without {name}"


def _broken_config_file(store: Path, random: Random) -> str:
    names = sorted(file.name for file in (store / "config").glob("*.json"))
    if not names:
        return "no config"
    name = random.choice(names)
    for file in (store / "config" / name, store / "config" / f"{name}.bak"):
        if file.exists():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2] or b"{")
    return f"half of {name}"


def _checkpoint(store: Path, random: Random) -> str:
    (store / "checkpoint").unlink(missing_ok=True)
    return "without checkpoint"


def _queues(store: Path, random: Random) -> str:
    shutil.rmtree(store / "consumequeue", ignore_errors=True)
    return "without consumequeue"


def _timer_log(store: Path, random: Random) -> str:
    shutil.rmtree(store / "timerlog", ignore_errors=True)
    return "without timerlog"


def _head(store: Path, random: Random) -> str:
    segments = _segments(store)
    count = random.randrange(len(segments))
    for segment in segments[:count]:
        segment.unlink()
    return f"without the first {count} segments"


def _tail(store: Path, random: Random) -> str:
    segments = _segments(store)
    count = random.randrange(len(segments))
    for segment in segments[len(segments) - count :]:
        segment.unlink()
    return f"without the last {count} segments"


def _middle(store: Path, random: Random) -> str:
    segments = _segments(store)
    if len(segments) < 3:
        return "no middle"
    segment = random.choice(segments[1:-1])
    segment.unlink()
    return f"without segment {segment.name}"


def _range(store: Path, random: Random) -> str:
    segment = random.choice(_segments(store))
    start = random.randrange(segment.stat().st_size)
    size = random.choice((100, 1_000, 20_000))
    with open(segment, "r+b") as file:
        file.seek(start)
        file.write(b"\0" * min(size, segment.stat().st_size - start))
    return f"zeros in {segment.name} from {start}, {size} bytes"


def _segments(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


_REMOVALS = (_config_file, _broken_config_file, _checkpoint, _queues, _timer_log, _head, _tail, _middle, _range, _range)

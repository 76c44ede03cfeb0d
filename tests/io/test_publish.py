from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_mq.io import publish as publish_module
from spark_mq.io.local import start_flush
from spark_mq.io.location import Location
from spark_mq.io.publish import publish, published


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize(("content", "size"), [(b"", 0), (b"abc", 3), (b"abc", 10), (b"", 5), (memoryview(b"xy"), 4)])
def test_a_file_is_the_content_and_zeros(content: bytes | memoryview, size: int, tmp_path: Path) -> None:
    publish(Location.resolve(str(tmp_path / "file")), content, size)
    assert (tmp_path / "file").read_bytes() == bytes(content).ljust(size, b"\0")


def test_folders_are_made(tmp_path: Path) -> None:
    publish(Location.resolve(str(tmp_path / "a" / "b" / "file")), b"x", 1)
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"x"


@pytest.mark.parametrize("millis", [0, 1, 1_700_000_000_123])
def test_the_modification_time_is_set(millis: int, tmp_path: Path) -> None:
    publish(Location.resolve(str(tmp_path / "file")), b"x", 1, millis)
    assert (tmp_path / "file").stat().st_mtime_ns == millis * 1_000_000


@pytest.mark.parametrize("millis", [(1 << 63) - 1, -(1 << 63), 1 << 60])
def test_a_time_that_no_file_can_have_does_not_fail(millis: int, tmp_path: Path) -> None:
    publish(Location.resolve(str(tmp_path / "file")), b"x", 1, millis)
    assert (tmp_path / "file").read_bytes() == b"x"


def test_a_file_that_is_there_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"the old content")
    publish(Location.resolve(str(tmp_path / "file")), b"new", 5)
    assert (tmp_path / "file").read_bytes() == b"new\0\0"


def test_whoever_has_the_old_file_open_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with open(tmp_path / "file", "rb") as reader:
        publish(Location.resolve(str(tmp_path / "file")), b"new", 3)
        assert reader.read() == b"old"


def test_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    publish(Location.resolve(str(tmp_path / "file")), b"x", 1)
    assert names_in(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace", "utime"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "file").write_bytes(b"old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left"):
        publish(Location.resolve(str(tmp_path / "file")), b"new", 3, 1000)
    assert names_in(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_an_interrupt_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        publish(Location.resolve(str(tmp_path / "file")), b"new", 3)
    assert names_in(tmp_path) == []


def test_zeros_behind_the_content_are_a_hole(tmp_path: Path) -> None:
    publish(Location.resolve(str(tmp_path / "file")), b"x", 50 << 20)
    status = (tmp_path / "file").stat()
    assert status.st_size == 50 << 20
    if status.st_blocks == 0:
        pytest.skip("the filesystem does not count blocks")
    assert status.st_blocks * 512 < 1 << 20


def test_large_writes_go_to_the_disk_while_the_next_ones_are_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def record(descriptor: int, position: int, size: int) -> None:
        started.append((position, size))
        start_flush(descriptor, position, size)

    monkeypatch.setattr(publish_module, "start_flush", record)
    with published(Location.resolve(str(tmp_path / "file")), 5 << 20) as file:
        file.write(2 << 20, b"b" * (2 << 20))
        file.write(0, b"a" * 1000)
    assert started == [(2 << 20, 2 << 20)]
    content = (tmp_path / "file").read_bytes()
    assert content == b"a" * 1000 + bytes((2 << 20) - 1000) + b"b" * (2 << 20) + bytes(1 << 20)

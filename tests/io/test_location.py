from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from spark_mq.errors import OptionError, SparkMqError, StorageError, StoreNotFoundError
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.store.log.commit_log import CommitLog, SegmentSource, plan_splits
from spark_mq.testing import LogWriter
from tests.support.local_objects import local_objects
from tests.support.readers import by_hopping, by_splits


def a_log() -> LogWriter:
    writer = LogWriter(8 << 10)
    for number in range(200):
        writer.append(1000 + number, bytes(number))
    return writer


@pytest.mark.parametrize("uri", ["/a/b", "file:/a/b", "file:///a/b", "/a/b/", "file:///a/b/", "/a/./c/../b"])
def test_a_local_path_can_be_written_in_several_ways(uri: str) -> None:
    location = Location.resolve(uri)
    assert (location.path, location.is_local, location.name) == ("/a/b", True, "b")


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.resolve("store").path == str(tmp_path / "store")


@pytest.mark.parametrize("uri", ["dbfs:/x/y", "dbfs:///x/y"])
def test_databricks_paths_are_its_local_mount(uri: str) -> None:
    assert Location.resolve(uri).path == "/dbfs/x/y"


@pytest.mark.parametrize("uri", ["", "nonsense://x/y"])
def test_other_uris_are_refused(uri: str) -> None:
    with pytest.raises(OptionError):
        Location.resolve(uri)


def test_what_a_location_was_made_from_gives_it_again(tmp_path: Path) -> None:
    location = Location.resolve(f"file://{tmp_path}") / "a" / "b"
    assert Location.resolve(location.uri).path == location.path == str(tmp_path / "a" / "b")


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_path_with_odd_characters_is_opened(scheme: str, tmp_path: Path) -> None:
    folder = tmp_path / "with space ü"
    folder.mkdir()
    assert Location.resolve(f"{scheme}{folder}").is_directory


def test_a_percent_encoded_file_uri_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "with space").mkdir()
    assert Location.resolve(f"file://{tmp_path}/with%20space").is_directory


def test_a_name_goes_before_the_query_of_a_uri() -> None:
    store = Location.resolve("s3://bucket/store?region=eu-west-1&anonymous=true")
    assert (store / "commitlog").uri == "s3://bucket/store/commitlog?anonymous=true&region=eu-west-1"


def test_entries_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).write_bytes(b"")
    assert [info.base_name for info in Location.resolve(str(tmp_path)).entries()] == ["a", "b", "c"]


def test_no_folder_has_no_entries(tmp_path: Path) -> None:
    assert Location.resolve(str(tmp_path / "nowhere")).entries() == []


@pytest.mark.parametrize("is_local", [True, False])
def test_folders_are_the_entries_that_are_folders(is_local: bool, tmp_path: Path) -> None:
    for name in ("b", "a", "é"):
        (tmp_path / "store" / name).mkdir(parents=True)
        (tmp_path / "store" / name / "file").touch()
    (tmp_path / "store" / "file").write_bytes(b"")
    (tmp_path / "store" / "link").symlink_to(tmp_path / "store" / "a")
    (tmp_path / "store" / "nowhere").symlink_to(tmp_path / "gone")
    location = Location.resolve(str(tmp_path / "store")) if is_local else local_objects(tmp_path, "store")
    assert location.folders() == ["a", "b", "link", "é"]
    assert (location / "gone").folders() == []
    if is_local:
        assert (location / "file").folders() == []


@pytest.mark.parametrize("name", [b"a\xff", b"\xed\xa0\x80"])
def test_a_name_that_is_not_utf8_is_an_error_that_shows_it(name: bytes, tmp_path: Path) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/" + name)
    folder = Location.resolve(str(tmp_path))
    for look in (folder.entries, folder.folders):
        with pytest.raises(StorageError, match=re.escape(f"{tmp_path}: the name {name!r} in it is not UTF-8")):
            look()


def test_files_and_folders_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    folder = Location.resolve(str(tmp_path))
    file = folder / "file"
    assert (folder.is_directory, folder.is_file, file.is_directory, file.is_file) == (True, False, False, True)
    assert file.read_bytes() == b"content"


def test_a_log_elsewhere_is_read_as_a_local_one(tmp_path: Path) -> None:
    writer = a_log()
    local = by_hopping(CommitLog.open(writer.write(tmp_path / "store")))
    log = CommitLog.open(local_objects(tmp_path, "store"))
    assert [part[1] for part in local] == writer.offsets
    assert by_hopping(log) == local
    assert by_splits(log, 1000) == local


def test_the_last_segment_elsewhere_is_one_split(tmp_path: Path) -> None:
    writer = a_log()
    writer.write(tmp_path / "store")
    splits = plan_splits(CommitLog.open(local_objects(tmp_path, "store")), 1000)
    assert len([split for split in splits if split.segment.is_last]) == 1
    assert len([split for split in splits if not split.segment.is_last]) > 5


def test_no_store_elsewhere_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="does not exist"):
        CommitLog.open(local_objects(tmp_path, "nowhere"))


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    location = a_log().write(tmp_path)
    segment = CommitLog.open(location).segments[0]
    Path(segment.location.path).write_bytes(bytes(100))
    with SegmentSource(segment) as source, pytest.raises(SparkMqError, match="the file ended at 100"):
        source.read(50, 100)


@pytest.mark.parametrize("is_local", [True, False])
def test_a_range_is_read_up_to_the_segment_s_end(is_local: bool, tmp_path: Path) -> None:
    writer = a_log()
    writer.write(tmp_path / "store")
    location = Location.resolve(str(tmp_path / "store")) if is_local else local_objects(tmp_path, "store")
    with SegmentSource(CommitLog.open(location).segments[0]) as source:
        assert source.read(8000, 1000).tobytes() == bytes(writer.segments[0])[8000:]
        assert source.bytes_read == (8 << 10) - 8000


@pytest.mark.parametrize("name", ["out/a", "deep/in/folders/a", "a"])
def test_a_file_elsewhere_is_published_whole(name: str, tmp_path: Path) -> None:
    publish(local_objects(tmp_path, name), b"content", 10, 5)
    assert (tmp_path / name).read_bytes() == b"content\0\0\0"


def test_a_file_elsewhere_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_bytes(b"the old content")
    publish(local_objects(tmp_path, "out/a"), memoryview(b"new"), 3)
    assert (tmp_path / "out" / "a").read_bytes() == b"new"


def test_a_length_that_the_filesystem_does_not_hold_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SparkMqError, match="wrote 3 bytes, but the filesystem has 7"):
        publish(local_objects(tmp_path, "out/a"), b"content", 3)

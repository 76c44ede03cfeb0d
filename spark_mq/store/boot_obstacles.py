"""Why a broker does not start on a store: what its files are, a sentence each, for a person."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from pyarrow import fs

from spark_mq.errors import ConfigError, StorageError, UnsupportedStoreError
from spark_mq.format.broker_version import EMPTY_LAST_FILE_IS_DELETED, FOLDERS_ARE_SKIPPED, BrokerVersion
from spark_mq.io.local import kind_of
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import can_read_rocksdb
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import CHECKPOINT
from spark_mq.store.config.config_file import load_config
from spark_mq.store.config.store_kind import configured_batch_topics, double_written_database
from spark_mq.store.config.store_paths import ABORT, COMMIT_LOG, CONFIG, INDEX, MAPPED_FILE_NAME, mapped_files
from spark_mq.store.log.segment_files import MAX_OFFSET, usual_size
from spark_mq.store.queue.folders import (
    QueueFolder,
    existing_file_size,
    find_batch_file_size,
    queue_path,
    queues_in_files,
    without_empty_file,
)
from spark_mq.store.queue.queue_database import QueueDatabase
from spark_mq.store.store_lock import LOCK

_CONFIG_FILES = ("timercheck", "timermetrics", "transactionMetrics")
"""The files of `config/` without an ending."""
CONFIG_FILES = tuple(
    f"{name}.json" for name in ("topics", "consumerOffset", "subscriptionGroup", "consumerFilter", "delayOffset")
)
"""The files of `config/` that a broker of every version loads before it starts (`BrokerController.initialize`)."""


_MAX_FILE_SIZE = 1 << 31


def irregular_files(store: Location) -> Iterator[tuple[str, str]]:
    """Path and kind of each entry of a local store that is not a regular file although every broker opens it as one."""
    if not store.is_local:
        return
    for name in (ABORT, CHECKPOINT, LOCK):
        kind = kind_of((store / name).path)
        if kind is not None:
            yield name, kind
    yield from _irregular(store, COMMIT_LOG, has_folders=True)
    for queue in queues_in_files(store):
        yield from _irregular(store, queue.location.path.removeprefix(f"{store.path}/"), has_folders=True)
    yield from _irregular(store, INDEX)
    for path, kind in _irregular(store, CONFIG):
        name = path.rpartition("/")[2].removesuffix(".bak")
        if not os.path.isdir((store / path).path) or name.endswith(".json") or name in _CONFIG_FILES:
            yield path, kind


def _irregular(store: Location, folder: str, has_folders: bool = False) -> Iterator[tuple[str, str]]:
    try:
        with os.scandir((store / folder).path) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        try:
            is_regular = entry.is_file() or (has_folders and entry.is_dir())
        except OSError:  # a link that leads to itself
            is_regular = False
        kind = None if is_regular else kind_of(entry.path)
        if kind is not None:
            yield f"{folder}/{entry.name}", kind


@dataclass(frozen=True)
class BootObstacles:
    """Why a broker does not start on a store, as text for a person. What all versions ask for is read once.

    A broker maps each file of `commitlog/`, and each file of a queue, in one size (`MappedFileQueue.doLoad`@5.3.3 and
    @4.9.7). It stops if a file of `config/` cannot be read, and the file's `.bak` neither (`ConfigManager.load`).
    """

    store: Location
    conf: BrokerConf

    def of(self, queues: Iterable[QueueFolder], release: BrokerVersion | None = None) -> list[str]:
        """The obstacles to a release, or without one to any version; an empty list if nothing was found."""
        return [
            *self._irregular,
            *self._of_log(release),
            *self._of_queues(list(queues), release),
            *self._of_database,
            *self._of_config,
        ]

    @cached_property
    def _irregular(self) -> list[str]:
        return [
            f"{path} is {kind}, not a file: a broker does not start with it, or waits for it; move it away"
            for path, kind in irregular_files(self.store)
        ]

    @cached_property
    def _batch_topics(self) -> frozenset[str]:
        return configured_batch_topics(self.store)

    def _of_log(self, release: BrokerVersion | None) -> Iterator[str]:
        entries = (self.store / COMMIT_LOG).entries()
        segments = mapped_files(entries)
        size = self.conf.commit_log_file_size or usual_size(segments)
        yield from _foreign(COMMIT_LOG, entries, "segment", release)
        for info in segments:
            name = f"{COMMIT_LOG}/{info.base_name}"
            if not _is_offset(info.base_name):
                continue
            if info.size == 0 and info is segments[-1]:
                if release is None or not EMPTY_LAST_FILE_IS_DELETED.holds(release):
                    yield f"{name} is empty: brokers before 5.1.3 do not start with it, later ones delete it"
            elif info.size != size:
                source = self.conf.source if self.conf.commit_log_file_size else "most segments"
                yield f"{name} has {info.size:,} bytes, not {size:,} as {source}"

    def _of_queues(self, folders: list[QueueFolder], release: BrokerVersion | None) -> Iterator[str]:
        """A broker loads queue folders without queue files, too (`ConsumeQueueStore.loadConsumeQueues`@5.3.3)."""
        for queue in queues_in_files(self.store):
            path = queue.location.path.removeprefix(f"{self.store.path}/")
            yield from _foreign(path, queue.location.entries(), "queue file", release)
            if queue.is_batch != (queue.topic in self._batch_topics):
                kind, says = ("batch ", "does not say") if queue.is_batch else ("", "says")
                yield (
                    f"{path} is a {kind}consume queue, but {CONFIG}/topics.json {says} queue.type=BatchCQ for its "
                    "topic: a broker does not start with it; move it away"
                )
        for is_batch in (False, True):
            of_kind = [folder for folder in folders if folder.is_batch == is_batch]
            if release is not None and EMPTY_LAST_FILE_IS_DELETED.holds(release):
                of_kind = [without_empty_file(folder) for folder in of_kind]
            yield from self._of_sizes(of_kind, is_batch)

    def _of_sizes(self, folders: list[QueueFolder], is_batch: bool) -> Iterator[str]:
        store, conf = self.store, self.conf
        given = conf.batch_consume_queue_file_size if is_batch else conf.consume_queue_file_size
        size = given or (find_batch_file_size(conf, store).value if is_batch else existing_file_size(folders))
        odd = [(folder, info) for folder in folders for info in folder.files if size is not None and info.size != size]
        if odd:
            folder, info = odd[0]
            name = queue_path(folder.topic, folder.queue_id, info.base_name, folder.tree)
            source = conf.source if given else "most queue files"
            others = f"; {len(odd) - 1:,} other queue files have a wrong size, too" if len(odd) > 1 else ""
            yield f"{name} has {info.size:,} bytes, not {size:,} as {source}{others}"

    @cached_property
    def _of_database(self) -> list[str]:
        """Why RocksDB does not open the database beside queue files, which a broker with this setting opens."""
        database = double_written_database(self.store) if can_read_rocksdb() else None
        if database is not None and (self.conf.is_enabled("rocksdbCQDoubleWriteEnable") or not self.conf.is_given):
            try:
                QueueDatabase(database).open_database()
            except StorageError as error:
                return [
                    f"{error}. A broker with rocksdbCQDoubleWriteEnable=true needs it: `spark-mq repair "
                    f"{shlex.quote(self.store.path)} --apply --broker-conf FILE` makes it again"
                ]
        return []

    @cached_property
    def _of_config(self) -> list[str]:
        found = []
        for name in CONFIG_FILES:
            try:
                load_config(self.store, name, lambda content: content)
            except ConfigError as error:
                found.append(str(error))
            except UnsupportedStoreError:
                continue
        return found


def _foreign(folder: str, entries: Iterable[fs.FileInfo], kind: str, release: BrokerVersion | None) -> Iterator[str]:
    """The entries of a folder of mapped files that are folders, or files of other names."""
    for info in entries:
        if info.type == fs.FileType.Directory:
            if release is None or not FOLDERS_ARE_SKIPPED.holds(release):
                yield f"{folder}/{info.base_name} is a folder: 4.9 to 5.0 do not start with it; move it away"
        elif info.type == fs.FileType.File and not _is_offset(info.base_name):
            yield f"{folder}/{info.base_name} is not a {kind}: move it away"


def _is_offset(name: str) -> bool:
    """Whether the name is that of a file which a broker maps, and leaves room for the file's bytes."""
    return MAPPED_FILE_NAME.fullmatch(name) is not None and int(name) < MAX_OFFSET - _MAX_FILE_SIZE

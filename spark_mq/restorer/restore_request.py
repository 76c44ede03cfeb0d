"""A request to restore a store. It is checked without Spark: a wrong argument must not wait for a JVM."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path, PurePosixPath
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.errors import (
    EmptyStoreError,
    OptionError,
    OutputExistsError,
    StorageError,
    StoreLockedError,
    UnfinishedAppendError,
)
from spark_mq.format.broker_version import BrokerVersions
from spark_mq.format.message_id import parse_host
from spark_mq.format.system_topic import LEFT_OUT_TOPIC, REVIVE_PREFIX
from spark_mq.io.location import Location
from spark_mq.job.progress import PROGRESS
from spark_mq.job.tasks import NONCE
from spark_mq.query.lexer import certain_syntax_error
from spark_mq.restorer.append_target import check_appendable
from spark_mq.restorer.placement import WAITING_TOPICS
from spark_mq.restorer.queue_choice import QueueSelector, parse_queue_selector
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import new_topic_fault
from spark_mq.store.config.store_kind import dledger_node, has_log
from spark_mq.store.config.store_paths import COMMIT_LOG, RESTORE_UNFINISHED
from spark_mq.store.index.file_names import parse_time_zone
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import DEFAULT_SEGMENT_SIZE
from spark_mq.store.store_lock import is_locked

RESTORING = ".restoring"
"""The end of the name of the folder beside the new store in which a job works."""

MAP_SUFFIX = "_offsets"
"""The end of the name of the folder beside the new store that has the old and the new offsets."""

STORE, CHUNKS = "store", "chunks"
"""What is in the folder in which a job works, besides marks of progress: the new store, and chunks of records."""


def is_store(source: str) -> bool:
    """Whether a source is a store directory, and not the table of an archive."""
    return has_log(Location.resolve(source))


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "broker_conf": BrokerConf.of,
    "broker_version": BrokerVersions.parse,
    "time_zone": parse_time_zone,
    "offset_map": Location.resolve,
    "queue_selector": parse_queue_selector,
}
"""What makes a field of a request of an argument that is text."""


@dataclass(frozen=True)
class LeftOut:
    """Topics whose messages are left out: some names, and all that begin with a prefix.

    With new offsets, these are left-out records of an earlier restore, and the notes of pop consumption, which name
    others by their queue offsets.
    """

    topics: tuple[str, ...] = ()
    prefix: str | None = None

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The messages of a batch that are not left out."""
        is_left_out = pc.is_in(batch["topic"], pa.array(self.topics, pa.string()))
        if self.prefix is not None:
            is_left_out = pc.or_(is_left_out, pc.starts_with(batch["topic"], self.prefix))
        return batch.filter(pc.invert(is_left_out)) if pc.any(is_left_out).as_py() else batch


@dataclass(frozen=True)
class RestoreRequest:
    """What to restore, and how: the arguments of `spark_mq.restore`, parsed and checked.

    With `replace`, a store that exists is set aside under another name. With `keeps_queue_offsets`, only commit log
    offsets are new: the log of a DLedger node has a head before each record. Of an archive, `names` has `cluster`,
    `broker` and `store_name` of the store; None for any.
    """

    store: Location
    where: str | None = None
    renumber: bool = False
    keeps_queue_offsets: bool = False
    append: bool = False
    replace: bool = False
    only_delivered: bool = False
    store_host: str | None = None
    topic_map: Mapping[str, str] = field(default_factory=dict)
    broker_conf: BrokerConf = field(default_factory=lambda: BrokerConf.of(None))
    broker_version: BrokerVersions | None = None
    time_zone: tzinfo | None = None
    offset_map: Location | None = None
    append_id: str | None = None
    queue_selector: QueueSelector = QueueSelector.QUEUE_ID
    names: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, store: str, **arguments: Any) -> Self:
        """The request with these arguments of `spark_mq.restore`, as a user gives them; None counts as not given."""
        given = {name: value for name, value in arguments.items() if value is not None}
        parsed = {name: _PARSERS[name](value) if name in _PARSERS else value for name, value in given.items()}
        request = cls(Location.resolve(store), **parsed)
        request._check_arguments()
        request.check_target()
        return request

    def _check_arguments(self) -> None:
        if not self.store.is_local:
            self._check_remote()
        if self.store.is_bucket:
            raise OptionError(f"{self.store} is a bucket: give a folder in it, such as {self.store}/store")
        if self.topic_map and not self.is_renumbered:
            raise OptionError("--topic-map changes the sizes of messages, so they need new offsets: add --renumber")
        for old, new in self.topic_map.items():
            if fault := new_topic_fault(new):
                raise OptionError(f"--topic-map {old}={new[:80]}: the new name {fault}")
        if self.where is not None:
            problem = certain_syntax_error(f"SELECT {self.where}") if self.where.strip() else "it is empty"
            if problem is not None:  # Spark finds all other errors
                raise OptionError(f"--where {self.where!r} is not a condition: {problem}")
        if self.store_host is not None:
            try:
                parse_host(self.store_host)
            except ValueError as error:
                raise OptionError(f"--store-host: {error}") from error
        if self.offset_map is not None and not (self.is_renumbered or self.store_host):
            raise OptionError(
                "--offset-map has no effect: offsets and ids change only with --renumber, --append or --store-host"
            )
        if self.append_id is not None and not self.append:
            raise OptionError("--append-id has no effect without --append: only an append to a store needs an identity")

    def _check_remote(self) -> None:
        if self.store.renames:
            raise OptionError(f"{self.store} is not local, and not on S3: restore to a folder, and copy it from there")
        if self.append:
            raise OptionError(
                f"{self.store}: nothing can be appended on S3, which has no rename, and no lock against a broker and "
                "other jobs: append to a local copy"
            )
        if self.replace:
            raise OptionError(f"{self.store}: no store can be replaced on S3, which has no rename: give a new folder")

    @property
    def is_renumbered(self) -> bool:
        """Whether messages get new offsets even if the source has offsets."""
        return self.renumber or self.append or self.keeps_queue_offsets

    @property
    def left_out(self) -> LeftOut:
        """The topics whose messages are left out."""
        waiting = WAITING_TOPICS if self.only_delivered else ()
        is_dense = self.is_renumbered and not self.keeps_queue_offsets
        return LeftOut((*waiting, LEFT_OUT_TOPIC), REVIVE_PREFIX) if is_dense else LeftOut(waiting)

    @property
    def work_folder(self) -> Location:
        """The folder beside the new store in which the job works: on the same filesystem, so that it can be renamed."""
        return self.store.parent / f"{self.store.name}{RESTORING}"

    @property
    def offset_map_folder(self) -> Location:
        """The folder for the table of old and new offsets."""
        return self.offset_map or self.store.parent / f"{self.store.name}{MAP_SUFFIX}"

    def check_target(self) -> None:
        """Raise an error if the new store cannot be put in its place; nothing is created or changed."""
        for folder in (self.store, self.work_folder):
            if self.offset_map is not None and _is_within(self.offset_map, folder):
                raise OptionError(f"--offset-map {self.offset_map} is in the folder {folder}: give another folder")
        if self.append:
            with suppress(UnfinishedAppendError):  # the job finishes that append
                CommitLog.open(self.store)
            self._check_lock()
            check_appendable(self.store)
            return
        self.store.check_bucket()
        if self.store.is_local and os.path.islink(self.store.path):
            raise OutputExistsError(f"{self.store} is a symbolic link: give the folder to which it leads")
        if self.store.is_file:
            raise OutputExistsError(f"{self.store} is a file: give a new folder")
        if self.replace and (self.store / COMMIT_LOG).is_directory:
            self._check_lock()
        elif self.store.entries() and not (self.store / COMMIT_LOG / RESTORE_UNFINISHED).is_file:
            raise OutputExistsError(
                f"{self.store} is not empty, and is not a message store: give another folder"
                if not (self.store / COMMIT_LOG).is_directory
                else f"{self.store} is not empty: give a new folder, or --append to append to the store that is there"
            )
        if self.store.is_local and os.path.ismount(self.store.path):
            raise StorageError(f"{self.store} is a mount point, which no folder can replace: give a folder in it")
        for info in self.work_folder.entries():
            if info.base_name not in (STORE, CHUNKS, PROGRESS) and not info.base_name.startswith(NONCE):
                raise OutputExistsError(
                    f"{self.work_folder} has files that no restore made, such as {info.base_name}: move them, because "
                    "a restore works in this folder, and removes it"
                )
        if self.store.is_local:
            parent = Path(self.store.path).parent
            while not os.path.lexists(parent):
                parent = parent.parent
            if not parent.is_dir():
                raise StorageError(f"{self.store} cannot be made: {parent} is not a folder")
            if not os.access(parent, os.W_OK | os.X_OK):
                raise StorageError(f"{self.store} cannot be made: {parent} cannot be written; give a folder elsewhere")

    def _check_lock(self) -> None:
        if is_locked(self.store):
            raise StoreLockedError(
                f"{self.store}: a broker runs on this store, or another job writes into it: stop the broker first"
            )

    def check_source(self, text: str) -> None:
        """Raise `OptionError` if the source does not fit, or if the job would change it; it is not opened."""
        given = [name for name, value in self.names.items() if value is not None]
        if given and is_store(text):
            option = f"--{given[0].replace('_', '-')}"
            raise OptionError(f"{option} has no effect: SOURCE {text} is a store, not an archive of several stores")
        if "/" not in text and not is_store(text):
            return
        source = Location.resolve(text)
        if _is_within(self.store, source):
            raise OptionError(
                f"SOURCE and STORE are the same folder, {source}"
                if _is_within(source, self.store)
                else f"STORE {self.store} is in the folder of SOURCE, which stays as it is: give a folder elsewhere"
            )
        if _is_within(source, self.store) or _is_within(source, self.work_folder):
            raise OptionError(f"SOURCE {source} is in a folder that the job changes: give a STORE elsewhere")
        if _is_within(self.offset_map_folder, source):
            raise OptionError(
                f"--offset-map {self.offset_map_folder} is in the folder of SOURCE, which stays as it is: give a "
                "folder elsewhere"
            )

    def with_settings(self, settings: Mapping[str, str]) -> Self:
        """The request with settings of the source, where the user gave none."""
        conf = dataclasses.replace(self.broker_conf, settings={**settings, **self.broker_conf.settings})
        return dataclasses.replace(self, broker_conf=conf)

    def of_source(self, source: str) -> Self:
        """The request for this source: messages of a DLedger log get new commit log offsets in any case."""
        is_moved = not self.is_renumbered and is_store(source) and dledger_node(Location.resolve(source)) is not None
        return dataclasses.replace(self, keeps_queue_offsets=True) if is_moved else self

    def nothing_to_restore(self, source: str) -> EmptyStoreError:
        """The error that says that no message of a source is restored."""
        if self.where is None and not self.only_delivered:
            return EmptyStoreError(f"{source} has no message: there is nothing to restore")
        return EmptyStoreError(f"{source} has no message that is to be restored: check --where and --only-delivered")

    @property
    def segment_size(self) -> int:
        """Bytes of a segment."""
        return self.broker_conf.commit_log_file_size or DEFAULT_SEGMENT_SIZE


def _is_within(inner: Location, outer: Location) -> bool:
    if not (inner.is_local and outer.is_local):
        return inner.storage == outer.storage and PurePosixPath(inner.path).is_relative_to(outer.path)
    return Path(inner.path).resolve().is_relative_to(Path(outer.path).resolve())

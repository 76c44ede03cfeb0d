"""Names of the files and folders in a store's directory (`StorePathConfigHelper`@5.3.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyarrow import fs

from spark_mq.io.location import Location

COMMIT_LOG = "commitlog"
"""The segments (default of `storePathCommitLog`, `MessageStoreConfig`@5.3.3)."""
DLEDGER = "dledger-"
"""The beginning of the name of a DLedger node's folder (`DLedgerConfig.getDefaultPath`@dledger-0.3.1)."""
DLEDGER_DATA, DLEDGER_INDEX = "data", "index"
"""The folders of a node: its log, whose segments have heads of entries before records, and the index of that log."""
CONSUME_QUEUE = "consumequeue"
"""A folder for each topic; in it, a folder of queue files for each queue id."""
CONSUME_QUEUE_ROCKSDB = "consumequeue_rocksdb"
"""The database of queues with `useSeparateStorePathForRocksdbCQ` (from 5.5.0 on)."""
CONSUME_QUEUE_EXT = "consumequeue_ext"
"""The extensions of the consume queues, in folders of the same names; only with `enableConsumeQueueExt`."""
BATCH_CONSUME_QUEUE = "batchconsumequeue"
"""The same folders for topics with `queue.type=BatchCQ`, which have none in `consumequeue`."""
INDEX = "index"
"""The index files."""
CONFIG = "config"
"""JSON files of the broker, such as `topics.json` (`BrokerPathConfigHelper`@5.3.3)."""
ABORT = "abort"
"""A file that a broker creates when it starts, and deletes when it stops cleanly
(`DefaultMessageStore.createTempFile`@5.3.3)."""
ABORT_BACKUP = "abort.bak"
"""An empty file that each start of a broker leaves, since 5.0.0 (`MixAll.string2File`@5.0.0)."""
TIMER_WHEEL = "timerwheel"
"""The wheel of the timer of 5.x (`TimerMessageStore`@5.3.3)."""
TIMER_LOG = "timerlog"
"""The log of the timer: where each of its messages waits in the wheel."""
COMPACTION = "compaction"
"""Copies of topics that are compacted (`CompactionStore`@5.3.3)."""
ROCKSDB_STORE = "rocksdbstore"
"""A RocksDB database that each start of a broker makes, since 5.4.0 (`MessageRocksDBStorage`@5.4.0)."""
APPENDS = "spark_mq_appends.json"
"""Which appends a store has (`restorer.appended_messages`). Brokers ignore the file."""

APPEND_UNFINISHED = "append-unfinished"
"""A file in `commitlog/` that exists while the files of an append are put in place (`restorer/append`). A broker
does not load a folder of segments with such a file (`MappedFileQueue.doLoad`@5.3.3 and @4.9.7)."""
RESTORE_UNFINISHED = "restore-unfinished"
"""A file in `commitlog/` that exists while the files of a new store are put in place on S3, for the same purpose
(`restorer/new_store`)."""

MAPPED_FILE_NAME = re.compile(r"[0-9]{20}")
"""A segment or a queue file: the offset of its first byte (`UtilAll.offset2FileName`@5.3.3)."""


CURRENT = "CURRENT"
"""The file of a RocksDB database that names its list of tables (`MANIFEST-*`); without it, there is no database."""


def is_rocksdb(folder: Location) -> bool:
    """Whether the folder contains a RocksDB database, by the names of its files."""
    names = [info.base_name for info in folder.entries()] if folder.is_directory else []
    return CURRENT in names and any(name.startswith("MANIFEST-") for name in names)


def mapped_files(entries: Iterable[fs.FileInfo]) -> list[fs.FileInfo]:
    """Those entries of a folder that are files with the name of a mapped file."""
    return [info for info in entries if info.type == fs.FileType.File and MAPPED_FILE_NAME.fullmatch(info.base_name)]

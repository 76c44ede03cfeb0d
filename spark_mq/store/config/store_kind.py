"""The forms of stores beside plain files: what shows each of them, and which doors are closed to it.

A plain store has the log in `commitlog/`, queue files in `consumequeue/`, index files in `index/`, and JSON files in
`config/`. Brokers have more forms, and most of them are not read here. `FORMS` is the one list of them. Each door to a
store asks `check_form`: a form that the door does not serve is an error, and one that changes an answer is a note.

Three other folders are not stores, and `check_log` says so: one of several folders of a log
(`MultiPathMappedFileQueue`@5.3.3), a commit log's own folder, and a folder without a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import pairwise
from typing import Any

from pyarrow import fs

from spark_mq.errors import (
    SparkMqError,
    StoreNotFoundError,
    UnfinishedAppendError,
    UnfinishedRestoreError,
    UnsupportedStoreError,
)
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import REMEDY, can_read_rocksdb
from spark_mq.store.config.config_file import config_database, load_config, read_config
from spark_mq.store.config.store_paths import (
    APPEND_UNFINISHED,
    BATCH_CONSUME_QUEUE,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_ROCKSDB,
    DLEDGER,
    DLEDGER_DATA,
    RESTORE_UNFINISHED,
    ROCKSDB_STORE,
    is_rocksdb,
    mapped_files,
)

DELTA_LOG = "_delta_log"
BATCH_QUEUES = "queue.type", "BatchCQ"
"""The attribute of a topic with batch consume queues, and its value."""
_COMPACTION_LOG = "compaction/compactionLog"
_ROCKSDB_QUEUES = (CONSUME_QUEUE, CONSUME_QUEUE_ROCKSDB)
_MIN_FILES = 3
"""A gap between two files may be a deleted file. Two gaps of the same size are not a coincidence."""


class Door(Enum):
    """What a caller wants of a store."""

    QUEUE = "answer by the offsets of one queue"
    UNITS = "read the units of one queue"
    QUEUES = "say something about all queues"
    BOOT = "say something about the next start of the broker"
    CHECK = "check files against the log"
    FILES = "make, continue or delete queue files"
    CHANGE = "change the files of the store"


@dataclass(frozen=True)
class Form:
    """A form of stores.

    Attributes:
        find: Where a store shows the form; None if it does not.
        topics: The topics that have the form, of which there must be one; None if it is a form of the whole store.
        refused: Why a door is closed to the form.
        noted: What an answer of a door leaves out.
    """

    setting: str
    find: Callable[[Location], Location | None]
    topics: Callable[[Location], frozenset[str]] | None = None
    refused: Mapping[Door, str] = field(default_factory=dict)
    noted: Mapping[Door, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FormNote:
    """What an answer leaves out because of a store's form."""

    path: str
    setting: str
    text: str

    def __str__(self) -> str:
        return f"{self.path} ({self.setting}) {self.text}"


@dataclass(frozen=True)
class FoundForm:
    """A form that a store shows."""

    form: Form
    place: Location
    path: str
    topics: frozenset[str]

    def check(self, door: Door) -> FormNote | None:
        """What an answer of `door` leaves out; None if it leaves out nothing."""
        names = ", ".join(sorted(self.topics))
        topics = f" of topic{'s' if len(self.topics) > 1 else ''} {names}" if names else ""
        setting = self.form.setting
        if door in self.form.refused:
            raise UnsupportedStoreError(f"{self.place} ({setting}) {self.form.refused[door].format(topics=topics)}")
        text = self.form.noted.get(door)
        return None if text is None else FormNote(self.path, setting, text.format(topics=topics))


def find_forms(store: Location, door: Door) -> list[FoundForm]:
    """The forms of the store at `store` that make a difference at `door`."""
    found = []
    for form in FORMS:
        place = form.find(store) if door in form.refused or door in form.noted else None
        topics = frozenset[str]() if place is None or form.topics is None else form.topics(store)
        if place is not None and (topics or form.topics is None):
            found.append(FoundForm(form, place, place.path.removeprefix(f"{store.path}/"), topics))
    return found


def check_form(store: Location, *doors: Door) -> list[FormNote]:
    """What an answer of `doors` about the store at `store` leaves out because of the store's form."""
    found = ((door, one) for door in doors for one in find_forms(store, door))
    return [note for door, one in found if (note := one.check(door)) is not None]


def has_rocksdb_queues(store: Location) -> bool:
    """Whether the queues of `store` are only in RocksDB. With double writes, they are in files, too."""
    return queue_database(store) is not None


def batch_topics(store: Location) -> frozenset[str]:
    """The topics that have batch consume queues, by their files or by `config/topics.json`."""
    return frozenset((store / BATCH_CONSUME_QUEUE).folders()) | configured_batch_topics(store)


def configured_batch_topics(store: Location) -> frozenset[str]:
    """The topics that `config/topics.json` gives batch consume queues."""
    return topics_with_attribute(store, *BATCH_QUEUES)


def queue_database(store: Location) -> Location | None:
    """The RocksDB database of the queues of `store`; None if they are in files, or in files, too."""
    database = _queue_database(store)
    return None if database is None or _has_queue_files(store) else database


def double_written_database(store: Location) -> Location | None:
    """The RocksDB database that has the queues of `store` besides files; None if there is none."""
    database = _queue_database(store)
    return database if database is not None and _has_queue_files(store) else None


def _unless_read(find: Callable[[Location], Location | None]) -> Callable[[Location], Location | None]:
    """The same search for a database, which finds nothing if a package reads RocksDB."""
    return lambda store: None if can_read_rocksdb() else find(store)


def _queue_database(store: Location) -> Location | None:
    return next((store / name for name in _ROCKSDB_QUEUES if is_rocksdb(store / name)), None)


def _has_queue_files(store: Location) -> bool:
    return any(_topics_with_files(store / CONSUME_QUEUE))


def _topics_with_files(tree: Location) -> Iterator[str]:
    for topic in tree.folders():
        if any(mapped_files((tree / topic / queue).entries()) for queue in (tree / topic).folders()):
            yield topic


def dledger_node(store: Location) -> Location | None:
    """The folder of the DLedger node that has the log of `store`; None if the log is a plain one."""
    names = [name for name in store.folders() if name.startswith(DLEDGER)]
    nodes = [store / name for name in names if mapped_files((store / name / DLEDGER_DATA).entries())]
    if len(nodes) > 1:
        raise UnsupportedStoreError(
            f"{store} has the logs of several DLedger nodes, {' and '.join(node.name for node in nodes)}: give a "
            "folder with links to everything except the folders of the other nodes (the broker's own is dLegerSelfId)"
        )
    return nodes[0] if nodes else None


def has_log(folder: Location) -> bool:
    """Whether a folder is a store: it has a folder of a log."""
    return (folder / COMMIT_LOG).is_directory or dledger_node(folder) is not None


def log_folders(store: Location) -> list[str]:
    """The paths in `store` of the folders that have its log."""
    node = dledger_node(store)
    return [COMMIT_LOG] if node is None else [COMMIT_LOG, f"{node.name}/{DLEDGER_DATA}"]


def _batch_queues(store: Location) -> Location:
    """What says that topics have batch consume queues: their files, or their attribute."""
    tree = store / BATCH_CONSUME_QUEUE
    return tree if tree.folders() else store / CONFIG / "topics.json"


def _compacted_topics(store: Location) -> frozenset[str]:
    topics = frozenset(_topics_with_files(store / _COMPACTION_LOG))
    return topics | topics_with_attribute(store, "cleanup.policy", "COMPACTION")


def _tiered(store: Location) -> Location | None:
    file = store / CONFIG / "tieredStoreMetadata.json"
    is_whole = (store / COMMIT_LOG / f"{0:020d}").is_file
    return file if file.is_file and not is_whole else None


def message_database(store: Location) -> Location | None:
    """The database that every store has since 5.4.0 (`MessageRocksDBStorage`@5.4.0), if it is not empty."""
    folder = store / ROCKSDB_STORE
    has_data = any(
        info.base_name.endswith(".sst") or (info.base_name.endswith(".log") and info.size) for info in folder.entries()
    )
    return folder if has_data else None


def topics_with_attribute(store: Location, name: str, value: str) -> frozenset[str]:
    """The topics whose attribute `name` is `value` in `config/topics.json`."""
    named = partial(named_with_attribute, name=name, value=value)
    return read_config(lambda: load_config(store, "topics.json", named))[0] or frozenset()


def named_with_attribute(content: dict[str, Any], name: str, value: str) -> frozenset[str]:
    """The topics whose attribute `name` is `value` in the content of `topics.json` (`TopicAttributes`@5.3.3)."""
    return frozenset(
        str(topic)
        for topic, values in (content.get("topicConfigTable") or {}).items()
        for key, found in (values.get("attributes") or {}).items()
        if key.lstrip("+") == name and found == value
    )


_OF_FILES = Door.CHECK, Door.FILES
FORMS: tuple[Form, ...] = (
    Form(
        "enableDLegerCommitLog",
        dledger_node,
        refused={
            Door.CHANGE: "is a DLedger log, which only its broker, and `spark-mq repair --from`, change. "
            "`spark-mq restore STORE NEW` makes a plain store of it"
        },
    ),
    Form(
        "queue.type=BatchCQ",
        _batch_queues,
        batch_topics,
        refused={
            Door.QUEUE: "has batch consume queues{topics}, in which a message can have several queue offsets: read the "
            "topic's messages without queue offsets, or look one up with `spark-mq query-by-offset`"
        },
    ),
    Form(
        "storeType=defaultRocksDB",
        _unless_read(queue_database),
        refused=dict.fromkeys((Door.UNITS, Door.QUEUES, Door.BOOT), f"is a RocksDB database: {REMEDY}"),
        noted=dict.fromkeys(_OF_FILES, f"is a RocksDB database, which is not checked: {REMEDY}"),
    ),
    Form(
        "rocksdbCQDoubleWriteEnable, or a change of storeType",
        double_written_database,
        noted={
            Door.QUEUE: "is a RocksDB database beside the queue files: the files are read, and of the database only "
            "light message queues that have no files. A broker with storeType=defaultRocksDB answers from the database",
            Door.FILES: "is a RocksDB database beside the queue files, which is not made here: with "
            "combineCQUseRocksdbForLmq, a broker without it does not know the light message queues of old messages. "
            "`spark-mq rebuild` makes both with a --broker-conf that has rocksdbCQDoubleWriteEnable=true",
        },
    ),
    Form(
        "rocksdbCQDoubleWriteEnable, or a change of storeType",
        _unless_read(double_written_database),
        noted=dict.fromkeys(_OF_FILES, f"is a RocksDB database beside the queue files, which is not checked: {REMEDY}"),
    ),
    Form(
        "storeType=defaultRocksDB, configManagerVersion=v2 or useSingleRocksDBForAllConfigs",
        _unless_read(lambda store: config_database(store, "consumerOffset.json")),
        noted=dict.fromkeys(
            _OF_FILES,
            "is a RocksDB database, which is not read: consumers' offsets are not compared with queues. To "
            f"read it, {REMEDY}",
        ),
    ),
    Form(
        "cleanup.policy=COMPACTION",
        lambda store: store / "compaction",
        _compacted_topics,
        noted={
            Door.QUEUE: "has the compacted copies{topics}: with enableCompaction a broker answers from them, without "
            "the messages that were compacted away. This answer is that of the queue in consumequeue/; "
            "table `compacted_messages` has what the broker answers",
            Door.FILES: "has the compacted copies{topics}, which are not made here",
        },
    ),
    Form(
        "TieredMessageStore",
        _tiered,
        noted={
            Door.QUEUE: "says that messages are in tiered storage, which is not read here: a broker can also have "
            "messages from before the log's start. Table messages with option tieredStorage has them, too"
        },
    ),
    Form(
        "indexRocksDBEnable, timerRocksDBEnable or transRocksDBEnable",
        message_database,
        noted={
            Door.CHECK: "is a RocksDB database of index records, timers or transactions: index records are checked "
            "with the whole log, and nothing else in it",
            Door.FILES: "is a RocksDB database of index records, timers or transactions, which is not made here; "
            "`spark-mq rebuild` makes its index records with a --broker-conf that has indexRocksDBEnable=true",
        },
    ),
)
"""The forms that are not plain, each with the doors at which it makes a difference."""


def check_log(store: Location) -> list[fs.FileInfo]:
    """The entries of the commit log folder of `store`, sorted by name; there may be none beside a DLedger log."""
    if not store.is_directory:
        what = "is a file" if store.is_file else "does not exist"
        raise StoreNotFoundError(f"{store} {what}: give the broker's store directory (storePathRootDir)")
    location = store / COMMIT_LOG
    if not location.is_directory:
        if dledger_node(store) is not None:
            return []
        raise _no_log_error(store)
    entries = location.entries()
    if any(info.base_name == APPEND_UNFINISHED for info in entries):
        raise unfinished_append(store)
    if any(info.base_name == RESTORE_UNFINISHED for info in entries):
        raise UnfinishedRestoreError(
            f"{location / RESTORE_UNFINISHED}: the files of a restore are being put in place, or the restore was "
            "interrupted. If no `spark-mq restore` to this store runs, run it again: it starts from the beginning"
        )
    files = mapped_files(entries)
    others = [info.base_name for info in entries if not info.base_name.startswith(".")]
    if others and not files:
        raise StoreNotFoundError(
            f"{location} contains {others[0]}, but no segments: segments are files whose names are 20 digits"
        )
    _check_one_of_several(location, files)
    return entries


def unfinished_append(store: Location) -> UnfinishedAppendError:
    """The error for a store in which only some of the files of an append are in place."""
    return UnfinishedAppendError(
        f"{store / COMMIT_LOG / APPEND_UNFINISHED}: messages are being appended to this store, or the append was "
        "interrupted while its files were put in place. Until it is finished, the store cannot be read, and no broker "
        "starts on it. If no `spark-mq restore --append` runs on this store, run it again: it finishes the interrupted "
        "one first. Do not remove the file"
    )


def _no_log_error(store: Location) -> SparkMqError:
    above = [store, store.parent] if store.name == DLEDGER_DATA else [store]
    if above[-1].name.startswith(DLEDGER):
        return StoreNotFoundError(f"{store} is a part of a DLedger log: give the folder {above[-1].parent}")
    if mapped_files(store.entries()):
        return StoreNotFoundError(
            f"{store} is itself a folder of segments, like commitlog/: give the folder that contains commitlog/ "
            "(storePathRootDir); if the log is in another folder, link it there under that name"
        )
    return StoreNotFoundError(
        f"{store} has no commitlog folder: give the broker's store directory (storePathRootDir); if storePathCommitLog "
        "names another folder, link it there as commitlog; if it names several, link the segments of all of them into "
        "a folder commitlog there"
    )


def _check_one_of_several(location: Location, files: list[fs.FileInfo]) -> None:
    bases = [int(info.base_name) for info in files]
    steps = {after - before for before, after in pairwise(bases)}
    sizes = {info.size for info in files}
    if len(bases) < _MIN_FILES or len(steps) > 1 or len(sizes) > 1:
        return
    (step,), (size,) = steps, sizes
    if size and step >= 2 * size and step % size == 0:
        raise UnsupportedStoreError(
            f"{location} contains only one of every {step // size} segments: if storePathCommitLog names several "
            "folders, each contains a part of the log. Link the segments of all of them into the commitlog/ of one "
            "folder"
        )


def refuse_rocksdb(consume_queue: Location) -> None:
    """Check that queue files can be written to `consume_queue`."""
    if is_rocksdb(consume_queue):
        raise UnsupportedStoreError(
            f"{consume_queue} is a RocksDB database (storeType=defaultRocksDB), which queue files must not replace: "
            "give another --output, or --replace and --queue-store"
        )


def has_delta_log(table: str) -> bool:
    """Whether a path or URI is that of a Delta table; of a URI that pyarrow cannot open, True if it is not a store."""
    try:
        location = Location.resolve(table.rstrip("/"))
        return (location / DELTA_LOG).is_directory and not has_log(location)
    except (SparkMqError, OSError):
        return "://" in table

"""The state of a store's index files: how far they cover the log, and which files a recovery deletes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_mq.errors import CorruptIndexError, CorruptLogError, OptionError
from spark_mq.format.broker_version import INDEX_TAGS, BrokerVersions
from spark_mq.format.dispatch import record_keys
from spark_mq.format.properties import TAGS, parse_properties
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.index.coverage import IndexedRange
from spark_mq.store.index.folder import IndexFileInfo, index_end, index_files, index_layout
from spark_mq.store.lacking_messages import TAIL_SIZE
from spark_mq.store.log.log_range import LogRange, iterate_records
from spark_mq.store.message_store import MessageStore


@dataclass(frozen=True)
class IndexFileEnd:
    """The end of one index file, as its header states it; all are 0 if the file is too short for a header.

    Attributes:
        next_entry: The number of the next entry: 1 if the file has no entry.
    """

    name: str
    end_timestamp: int
    end_offset: int
    next_entry: int


@dataclass(frozen=True)
class IndexState:
    """How far the index covers the log.

    Attributes:
        covered_to: The commit log offset up to which the valid files cover the log; the log's start without such files.
        lacking: The commit log offsets of the messages in that part that have keys, and so lack entries.
    """

    files: tuple[IndexFileEnd, ...]
    covered_to: int
    covered_timestamp: int | None
    checked: LogRange
    lacking: tuple[int, ...]
    log_end: int
    problems: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether all of the log after `covered_to` was read."""
        return self.checked.stop >= self.log_end


def index_state(store: MessageStore) -> IndexState:
    """How far the index files of a store cover its log. Files that contradict the log are not used."""
    covering = [part for part in store.index.parts if isinstance(part, IndexedRange)]
    end = store.get_max_phy_offset()
    covered_to = max((part.stop for part in covering), default=max(store.get_min_phy_offset(), 0))
    checked = LogRange(covered_to, max(covered_to, min(end, covered_to + TAIL_SIZE)))
    lacking = []
    try:
        for record in iterate_records(store.records, checked):
            if record_keys(record):
                lacking.append(record.commit_log_offset)
    except CorruptLogError:
        pass  # table `segments` reports damage of the log
    return IndexState(
        tuple(_end_of(file) for file in index_files(store.location)),
        covered_to,
        covering[-1].header.end_timestamp if covering else None,
        checked,
        tuple(lacking),
        end,
        tuple(dict.fromkeys(store.index.problems)),
    )


def _end_of(file: IndexFileInfo) -> IndexFileEnd:
    header = file.stored_header()
    return IndexFileEnd(file.name, header.end_timestamp, header.end_commit_log_offset, header.next_entry)


def kept_files(files: Sequence[IndexFileEnd], index_msg_timestamp: int) -> list[IndexFileEnd]:
    """The files that a broker keeps when it recovers after an unclean stop (`IndexService.load`@5.3.3, as in 4.9)."""
    return [file for file in files if file.end_timestamp <= index_msg_timestamp]


@dataclass(frozen=True)
class LastIndexed:
    """The last message in some index files, whose other entries are in the next file.

    A broker that dispatches the message again puts all its entries, because it compares offsets with `<`
    (`IndexService.buildIndex`@5.3.3).

    Attributes:
        entries: The number of entries that the files have, also one of its tags (`INDEX_TAGS`).
    """

    keys: int = 0
    entries: int = 0
    has_tags: bool = False

    def doubled(self, versions: BrokerVersions) -> int:
        """The number of entries that a broker of these versions puts a second time."""
        puts_tags = self.has_tags and bool(versions.decide(INDEX_TAGS))
        return min(self.entries, self.keys + puts_tags)


def last_indexed(store: MessageStore, conf: BrokerConf, kept: Sequence[IndexFileEnd]) -> LastIndexed:
    """The last message in these files; no keys if they have no entry, or if the log does not contain the message."""
    if not kept or max(file.next_entry for file in kept) <= 1:
        return LastIndexed()
    record = store.records.find(kept[-1].end_offset)
    if record is None:
        return LastIndexed()
    keys, has_tags = len(record_keys(record)), bool(parse_properties(record.properties).get(TAGS))
    names = {file.name for file in kept}
    infos = [info for info in index_files(store.location) if info.name in names]
    try:
        end = index_end(infos, index_layout(store.location, conf))
    except (CorruptIndexError, OptionError):
        return LastIndexed(keys, keys, has_tags)
    return LastIndexed(keys, keys if end is None else min(keys + has_tags, len(end.key_hashes)), has_tags)

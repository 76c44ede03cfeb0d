"""The answer of a broker to a look-up by key, with all that is not exact in it (`DefaultMessageStore.queryMessage`).

A broker returns what its index files say: at most `maxMsgsNumBatch` messages (64), those of other keys with the same
hash among them, for times in whole seconds, and nothing that its index files lack. The rule is the same in 4.9.7 and
5.3.3. A broker repeats a look-up of which no message is in the log, up to three times, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from spark_mq.format.dispatch import tags_key
from spark_mq.format.index_query import IndexFile, query_offset
from spark_mq.format.record import Record
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.index.folder import IndexFileInfo, index_files, index_layout

FIRST_TIME, LAST_TIME = 0, (1 << 63) - 1
"""The time range of `mqadmin queryMsgByKey`, if none is given."""
MQADMIN_MAX_NUM = 64
"""The number of messages for which `mqadmin queryMsgByKey` asks, if none is given."""


class IndexType(StrEnum):
    """What a look-up in the index is for (`QueryMessageRequestHeader.indexType`@5.5.0); a unique key is a key, too."""

    KEY = "K"
    TAG = "T"


@dataclass(frozen=True)
class BrokerAnswer:
    """What a broker returns.

    Attributes:
        records: The messages in the order of the log. A message can be there twice, and messages of other keys can.
        index_last_update_timestamp: The end time of the newest index file, in milliseconds; 0 if the index has nothing.
        unreadable: Commit log offsets in the index at which the log has no record.
    """

    records: tuple[Record, ...]
    index_last_update_timestamp: int
    index_last_update_commit_log_offset: int
    unreadable: tuple[int, ...]


def broker_answer(
    store: Location,
    conf: BrokerConf,
    files: FileReaders,
    find_record: Callable[[int], Record | None],
    topic: str,
    key: str,
    max_num: int,
    begin: int,
    end: int,
    index_type: IndexType = IndexType.KEY,
) -> BrokerAnswer:
    """The answer of a broker that runs on the store.

    Args:
        find_record: The live record at a commit log offset; None if there is none.
        max_num: The largest number of messages that is asked for.
        begin: The earliest store time in milliseconds, included.
        end: The latest store time in milliseconds, included.
        index_type: What `key` is: a key, or the tags of messages.
    """
    layout = index_layout(store, conf)

    def index_file(info: IndexFileInfo) -> IndexFile:
        layout.check_file_size(info.size, str(info.location))
        return IndexFile(
            str(info.location), layout, lambda position, length: files.read(info.location, position, length)
        )

    opened = [index_file(info) for info in index_files(store)]
    key = tags_key(key) if index_type == IndexType.TAG else key
    stored_topic, stored_key = topic.encode("utf-8", "replace"), key.encode("utf-8", "replace")
    found = query_offset(opened, stored_topic, stored_key, max_num, begin, end, conf.max_msgs_num_batch)
    offsets = sorted(found.commit_log_offsets)
    records = [(offset, find_record(offset)) for offset in offsets]
    return BrokerAnswer(
        tuple(record for _, record in records if record is not None),
        found.index_last_update_timestamp if offsets else 0,
        found.index_last_update_commit_log_offset if offsets else 0,
        tuple(dict.fromkeys(offset for offset, record in records if record is None)),
    )

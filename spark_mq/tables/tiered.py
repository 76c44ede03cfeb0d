"""What tiered storage has: messages, queues, files, units and index entries."""

from __future__ import annotations

from spark_mq.tables.messages import MESSAGES, OF_QUEUE_LOGS, TIERED_STORAGE
from spark_mq.tables.table import TOPIC, Column, Table

TIERED_MESSAGES = Table(
    "tiered_messages",
    summary="the messages in tiered storage",
    row="a record in tiered storage, with every field, and whether a broker answers with it",
    about="""\
The columns are those of messages, and state. commit_log_offset is the offset in the log that the queue has in tiered
storage, and offset_message_id has this offset, as a client shows it. state: COLD, the store does not have the message,
and the broker answers with this one; HOT, the store has it, too, and the broker answers with the store's (with
tieredStorageLevel NOT_IN_DISK, which is the default); NO_UNIT, consumers do not get the record: it is before the first
message that the broker offers, or no unit leads to it. A broker that was killed uploads messages again, and then their
first records are such. A condition on topic or queue_id selects folders: it does not find a damaged record that names
another queue than its folder (`verify --tiered-storage`: TIERED_RECORD).

Read `messages` with option `tieredStorage` for the messages of store and tiered storage, each once.
""",
    columns=(*MESSAGES.columns, Column("state", "STRING", "COLD, HOT or NO_UNIT; NULL for damage")),
    options=(TIERED_STORAGE, *OF_QUEUE_LOGS),
)

TIERED_QUEUES = Table(
    "tiered_queues",
    summary="the queues in tiered storage: their offsets, and how many messages only they have",
    row="a queue in tiered storage: its offsets, and how many messages are only there, or not there yet",
    about="""\
A broker uploads the messages of all topics except its own (`rmq_sys_*`, SCHEDULE_TOPIC_XXXX, ...), and except light
message queues. The counts are numbers of queue offsets.
""",
    columns=(
        Column("topic", "STRING", "the topic"),
        Column("queue_id", "INT", "the number of the queue"),
        Column("min_offset", "BIGINT", "the first queue offset that a broker offers of tiered storage"),
        Column("max_offset", "BIGINT", "the queue offset after the last message that was uploaded"),
        Column("only_tiered_count", "BIGINT", "messages that only tiered storage has"),
        Column("not_uploaded_count", "BIGINT", "messages of the store that are not in tiered storage yet"),
        Column("topic_id", "BIGINT", "the number of the topic in the metadata, and in index entries"),
        Column("reserve_hours", "BIGINT", "hours for which the topic is kept; NULL: tieredStoreFileReservedTime"),
        Column("log_bytes", "BIGINT", "bytes of the queue's log in tiered storage"),
    ),
    options=(TIERED_STORAGE, TOPIC),
    rows="spark_mq.store.tiered_storage.tiered_queues",
    noun="queue in tiered storage",
    example="""\
+------------+--------+----------+----------+-----------------+------------------+
|topic       |queue_id|min_offset|max_offset|only_tiered_count|not_uploaded_count|   ...
+------------+--------+----------+----------+-----------------+------------------+
|SequenceDemo|0       |0         |90        |61               |5                 |
|SequenceDemo|2       |24        |90        |37               |5                 |
""",
)

TIERED_SEGMENTS = Table(
    "tiered_segments",
    summary="the files of tiered storage, and what the metadata say of them",
    row="a file of tiered storage: its type, offsets, sizes and times, and its problem",
    about="""\
size, status and times are those of `config/tieredStoreMetadata.json`; times are store times of messages. A broker
appends to the last file of a queue, whose size the metadata can have later. `spark-mq verify --tiered-storage` reads
the files; problem only compares names and sizes.
""",
    columns=(
        Column("topic", "STRING", "the topic; rmq_sys_INDEX for index files"),
        Column("queue_id", "INT", "the number of the queue"),
        Column("file_type", "STRING", "COMMIT_LOG, CONSUME_QUEUE or INDEX"),
        Column("base_offset", "BIGINT", "the byte of the queue's log, units or index files at which it starts"),
        Column("file", "STRING", "the name of the file"),
        Column("file_size", "BIGINT", "bytes of the file; NULL if it is not there"),
        Column("size", "BIGINT", "bytes of the file by the metadata; NULL if they do not list it"),
        Column("status", "STRING", "NEW, SEALED or DELETED; brokers up to 5.5.0 leave it NEW"),
        Column("begin_timestamp", "TIMESTAMP", "the store time of the first message"),
        Column("end_timestamp", "TIMESTAMP", "the latest store time"),
        Column("create_timestamp", "TIMESTAMP", "the time at which the file was created"),
        Column("problem", "STRING", "how file and metadata differ, or file and the file before it, else NULL"),
    ),
    options=(TIERED_STORAGE, TOPIC),
    rows="spark_mq.store.tiered_storage.tiered_segments",
    noun="file of tiered storage",
)

TIERED_UNITS = Table(
    "tiered_units",
    summary="the units of the consume queues in tiered storage",
    row="a unit of a queue in tiered storage: the place of its message, its tags code, whether a broker offers it",
    columns=(
        Column("topic", "STRING", "the topic"),
        Column("queue_id", "INT", "the number of the queue"),
        Column("queue_offset", "BIGINT", "the offset in the queue"),
        Column("commit_log_offset", "BIGINT", "the offset of the message in the queue's log in tiered storage"),
        Column("store_size", "INT", "bytes of the message's record"),
        Column("tags_code", "BIGINT", "the hash of the tags"),
        Column("is_offered", "BOOLEAN", "whether a broker offers it: the file of its message is still there"),
    ),
    options=(TIERED_STORAGE, TOPIC),
    rows="spark_mq.store.tiered_storage.tiered_units",
)

TIERED_INDEX_ENTRIES = Table(
    "tiered_index_entries",
    summary="the entries of the index files in tiered storage",
    row="an entry of an index file in tiered storage: the hash of a key, and the place of a message",
    about="""\
A broker puts the unique key and the keys of a message, not its tags. Entries of files that were not uploaded yet
(`tiered_index_file/` in the store) have no row.
""",
    columns=(
        Column("file", "STRING", "the name of the file"),
        Column("key_hash", "INT", "the hash of topic and key"),
        Column("topic", "STRING", "the topic; NULL if the metadata have no such topic"),
        Column("topic_id", "INT", "the number of the topic in the metadata"),
        Column("queue_id", "INT", "the number of the queue"),
        Column("commit_log_offset", "BIGINT", "the offset of the message in the queue's log in tiered storage"),
        Column("store_size", "INT", "bytes of the message's record"),
        Column("store_timestamp", "TIMESTAMP", "the store time of the message, in whole seconds of the file's time"),
    ),
    options=(TIERED_STORAGE,),
    rows="spark_mq.store.tiered_storage.tiered_index_entries",
)

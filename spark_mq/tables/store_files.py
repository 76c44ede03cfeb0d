"""What the files of a store have: segments, queues, index files, the checkpoint."""

from __future__ import annotations

from spark_mq.tables.messages import MESSAGES, OF_QUEUE_LOGS
from spark_mq.tables.table import BROKER_VERSION, TOPIC, Column, Option, Table, at, broker_conf

_INDEX_CONF = broker_conf(
    "maxHashSlotNum and maxIndexNum, which an index file does not contain; needed if they are not the broker's defaults"
)

CONSUME_QUEUE = Table(
    "consume_queue",
    summary="the units of the consume queues",
    row=(
        "a unit of a consume queue: the offset of its message, its tags code, whether it is live, the bits of SQL92 "
        "filters"
    ),
    about="""\
All units of 20 bytes that were written have a row. Of a batch consume queue, each queue offset has a row, with the unit
of its record: several messages can be in one record. state: LIVE; EXPIRED, the segment of the message is gone;
PRE_BLANK, the unit is before the queue's first message; STALE, the unit is after the queue's end.

With `enableConsumeQueueExt`, the tags code in a unit is ext_address, the address of an extension unit. Then
tags_code, ext_store_timestamp and filter_bit_map are those of the extension unit, and NULL if there is none at the
address.
""",
    columns=(
        Column("topic", "STRING", "the topic"),
        Column("queue_id", "INT", "the queue of the topic"),
        Column("queue_offset", "BIGINT", "the offset in the queue"),
        Column("commit_log_offset", "BIGINT", "the commit log offset of the unit's message"),
        Column("store_size", "INT", "bytes of the message's record"),
        Column("tags_code", "BIGINT", "the hash of the tags, or of a delayed message its delivery time"),
        Column("state", "STRING", "the state; help(spark_mq.RocketMQDataSource) explains the values"),
        Column(
            "ext_address", "BIGINT", "the address of the extension unit, which the file has instead of the tags code"
        ),
        Column("ext_store_timestamp", "TIMESTAMP", "the store time in the extension unit"),
        Column("filter_bit_map", "BINARY", "the bits of the groups whose SQL92 filter was TRUE for the message"),
    ),
    options=(TOPIC, Option("queueId", "only queues with this id", column="queue_id")),
    example="""\
+-----------+--------+------------+-----------------+----------+---------+-----+
|topic      |queue_id|queue_offset|commit_log_offset|store_size|tags_code|state|
+-----------+--------+------------+-----------------+----------+---------+-----+
|OrderEvents|0       |0           |216426           |468       |33309882 |LIVE |
|OrderEvents|0       |1           |220024           |437       |2598919  |LIVE |
""",
)

SEGMENTS = Table(
    "segments",
    summary="the files of the commit log, their state and problems",
    row="a file of the commit log: its offsets, its state, its problem",
    about="""\
state: FULL, all its records are live; APPENDING, the file contains the live end; BEHIND, the file is after the live
end, because it was created in advance or truncated; EMPTY, the file has no byte; WRONG_SIZE, most files have
another size (a broker does not start with such a file); DAMAGED, the start or the end of the file is damaged;
STRAY, the file has the name of a segment, but is not a valid segment, and has no offsets.

problem describes the damage, or that files before the file are missing. The check covers the first record of each
file, the blank at the end of each full file, sizes and gaps. Only a read of `messages` or `spark-mq rebuild` finds
damage in the middle of a segment.
""",
    columns=(
        Column("file", "STRING", "the name of the file", 1),
        Column("commit_log_offset", "BIGINT", "the commit log offset at which the file starts", 7),
        Column("file_size", "BIGINT", "bytes of the file", 3),
        Column("end_offset", "BIGINT", "the commit log offset at which the live records end", 6),
        Column("state", "STRING", "the state; help(spark_mq.RocketMQDataSource) explains the values", 2),
        Column("first_store_timestamp", "TIMESTAMP", "the store time of the first message", 4),
        Column("modification_timestamp", "TIMESTAMP", "the time at which the file was last written", 8),
        Column("problem", "STRING", "the problem that a quick check finds, else NULL", 5),
    ),
    rows="spark_mq.store.metadata_tables.segments",
    noun="segment",
    remedy="`spark-mq verify` reads the whole log, and names all damage",
    example="""\
+--------------------+-----------------+----------+-----+-----------------------+
|file                |commit_log_offset|end_offset|state|first_store_timestamp  |   ...
+--------------------+-----------------+----------+-----+-----------------------+
|00000000000000000000|0                |131072    |FULL |2026-11-21 11:00:42.15 |
|00000000000000131072|131072           |262144    |FULL |2026-11-21 11:01:09.051|
""",
)

RETENTION = Table(
    "retention",
    summary="the segments: when each expires, and what is deleted with it",
    row="a segment with live messages: when it expires, and what is deleted with it",
    about="""\
expire_timestamp is `fileReservedTime` hours after the last change of the file, and not before that of the segments
before it. It is NULL, like delete_timestamp, for the newest segment, which a broker never deletes. `spark-mq
retention` has more: who loses messages by that, and how full the disk is.
""",
    columns=(
        Column("file", "STRING", "the name of the file", 1),
        Column("commit_log_offset", "BIGINT", "the commit log offset at which the file starts", 12),
        Column("file_size", "BIGINT", "bytes of the file", 10),
        Column("first_store_timestamp", "TIMESTAMP", "the store time of the first message", 11),
        Column("last_store_timestamp", "TIMESTAMP", "the store time of the last message", 5),
        Column("modification_timestamp", "TIMESTAMP", "the time at which the file was last written", 9),
        Column(
            "expire_timestamp", "TIMESTAMP", "its last change plus the reserved time, but not before older files", 2
        ),
        Column("delete_timestamp", "TIMESTAMP", "the first time from then on in an hour of deleteWhen", 4),
        Column("expire_by_store_timestamp", "TIMESTAMP", "its newest message's store time plus the reserved time", 8),
        Column("is_expired", "BOOLEAN", "whether expire_timestamp has come", 13),
        Column("queue_files", "BIGINT", "the number of queue files that are deleted with it", 6),
        Column("index_files", "BIGINT", "the number of index files that are deleted with it", 7),
        Column("freed_bytes", "BIGINT", "bytes of the file and those that are deleted with it; NULL for the newest", 3),
    ),
    options=(
        Option(
            "reservedHours",
            "hours for which a segment is kept; by default fileReservedTime of brokerConf, or else 72",
            "H",
        ),
        at("to which is_expired refers"),
        broker_conf("fileReservedTime and deleteWhen"),
    ),
    rows="spark_mq.store.retention.retention_rows",
    example="""\
+--------------------+-----------------------+----------+-----------+-----------+-----------+
|file                |expire_timestamp       |is_expired|queue_files|index_files|freed_bytes|   ...
+--------------------+-----------------------+----------+-----------+-----------+-----------+
|00000000000000000000|2026-11-24 11:01:08.942|false     |3          |2          |157952     |
|00000000000000131072|2026-11-24 11:01:15.958|false     |0          |1          |141512     |
""",
)

QUEUES = Table(
    "queues",
    summary="the consume queues, their offsets, times and problems (mqadmin topicStatus)",
    row="a consume queue: its offsets and times, as a broker offers them, and its problem",
    about="""\
The commit log offsets and store times are those of the message at min_offset and of the message before max_offset;
NULL if there is no message. state: CAUGHT_UP, the check found nothing; BEHIND, units of messages are missing at the
queue's end; AHEAD, units or a consumer group are past its last message in the log; DAMAGED, the queue's files, or
its first or last unit, are damaged; LOST, the queue had messages, but has no files.

The check covers the first and the last unit, the names and sizes of the files, the units of the messages in the
last 256 KiB of the log, and whether a consumer group is past the queue's end. So it does not notice a missing last
unit of an older message, nor missing units in the middle of a queue. `spark-mq rebuild` writes all queues from the
log. A queue can be BEHIND for a moment while its broker runs.
""",
    columns=(
        Column("topic", "STRING", "the topic", 1),
        Column("queue_id", "INT", "the number of the queue", 2),
        Column("min_offset", "BIGINT", "the first queue offset that a broker offers", 3),
        Column("max_offset", "BIGINT", "the queue offset after the last message", 4),
        Column("first_commit_log_offset", "BIGINT", "the commit log offset of the first message", 11),
        Column("last_commit_log_offset", "BIGINT", "the commit log offset of the last message", 10),
        Column("first_store_timestamp", "TIMESTAMP", "the store time of the first message", 8),
        Column("last_store_timestamp", "TIMESTAMP", "the store time of the last message", 7),
        Column("file_count", "INT", "the number of the queue's files", 9),
        Column("state", "STRING", "the state; help(spark_mq.RocketMQDataSource) explains the values", 5),
        Column("problem", "STRING", "the problem that a quick check finds, else NULL", 6),
    ),
    options=(TOPIC, BROKER_VERSION),
    rows="spark_mq.store.metadata_tables.queues",
    noun="queue",
    remedy="`spark-mq repair` plans what to do",
    example="""\
+-----------+--------+----------+----------+----------------------+-----------------------+
|topic      |queue_id|min_offset|max_offset|last_commit_log_offset|last_store_timestamp   |   ...
+-----------+--------+----------+----------+----------------------+-----------------------+
|OrderEvents|0       |0         |62        |493343                |2026-11-21 11:01:16.443|
|OrderEvents|1       |0         |62        |492042                |2026-11-21 11:01:16.442|
""",
)

CHECKPOINT = Table(
    "checkpoint",
    summary="up to which times log, queues and index were flushed: one row",
    row="the file `checkpoint`: up to which times log, queues and index were flushed",
    about="""\
A time is NULL if it was never set. After an unclean stop, a broker dispatches the log again from a segment that
begins at or before min_timestamp.
""",
    columns=(
        Column("physic_msg_timestamp", "TIMESTAMP", "the store time up to which the commit log was flushed", 1),
        Column("logics_msg_timestamp", "TIMESTAMP", "the store time up to which the consume queues were flushed", 2),
        Column("index_msg_timestamp", "TIMESTAMP", "the store time up to which full index files were flushed", 5),
        Column("min_timestamp", "TIMESTAMP", "the store time up to which log and queues are certainly flushed", 6),
        Column("master_flushed_offset", "BIGINT", "the commit log offset up to which the master flushed (5.0.0)", 9),
        Column("confirm_phy_offset", "BIGINT", "the confirmed commit log offset (5.1.1)", 7),
        Column(
            "logics_physical_offset",
            "BIGINT",
            "the commit log offset of the last message that was flushed to a consume queue (5.5.0)",
            8,
        ),
        Column("is_clean", "BOOLEAN", "whether there is no file abort: the broker was stopped cleanly", 3),
        Column("problem", "STRING", "the problem of the file, else NULL", 4),
    ),
    rows="spark_mq.store.metadata_tables.checkpoint",
    noun="checkpoint",
    remedy="`spark-mq rebuild` writes a checkpoint with the queues and the index",
    example="""\
+-----------------------+-----------------------+--------+-------+
|physic_msg_timestamp   |logics_msg_timestamp   |is_clean|problem|   ...
+-----------------------+-----------------------+--------+-------+
|2026-11-21 11:01:48.993|2026-11-21 11:01:48.993|true    |NULL   |
""",
)

EPOCHS = Table(
    "epochs",
    summary="the masters of a replica in controller mode, and where each began to write",
    row="an epoch of a replica in controller mode: the offset at which its master began to write",
    about="""\
The epochs are in `epochFileCheckpoint` (or its `.bak`), which only a broker with `enableControllerMode` has. problem:
the file is damaged, epochs or offsets do not rise, or an epoch begins after the end of the log.
""",
    columns=(
        Column("epoch", "INT", "the number of the epoch, which the controller gives", 1),
        Column("start_offset", "BIGINT", "the commit log offset at which the master began to write", 2),
        Column("end_offset", "BIGINT", "the start_offset of the next epoch; NULL for the last one", 3),
        Column("first_store_timestamp", "TIMESTAMP", "the store time of its first message, if the log has it", 4),
        Column("problem", "STRING", "the problem of the epoch, else NULL", 5),
    ),
    rows="spark_mq.store.metadata_tables.epochs",
    noun="epoch",
    nothing="epochFileCheckpoint does not exist: the broker is not in controller mode",
    example="""\
+-----+------------+----------+-----------------------+-------+
|epoch|start_offset|end_offset|first_store_timestamp  |problem|
+-----+------------+----------+-----------------------+-------+
|1    |0           |131072    |2026-11-21 11:01:40.120|NULL   |
|2    |131072      |NULL      |2026-11-21 11:01:48.993|NULL   |
""",
)

INDEX_FILES = Table(
    "index_files",
    summary="the headers of the index files",
    row="an index file: its header",
    about="""\
The oldest file is the first row.
""",
    columns=(
        Column("file", "STRING", "the name of the file"),
        Column("file_size", "BIGINT", "bytes of the file"),
        Column("begin_timestamp", "TIMESTAMP", "the store time of the file's first message"),
        Column("end_timestamp", "TIMESTAMP", "the store time of the file's last message"),
        Column("begin_commit_log_offset", "BIGINT", "the commit log offset of the file's first message"),
        Column("end_commit_log_offset", "BIGINT", "the commit log offset of the file's last message"),
        Column("hash_slot_count", "INT", "the number of slots in use"),
        Column("index_count", "INT", "the number of entries, plus 1"),
    ),
    options=(_INDEX_CONF,),
    rows="spark_mq.store.metadata_tables.index_files",
    noun="index file",
    example="""\
+-----------------+-----------------------+---------------------+---------------+-----------+
|file             |begin_timestamp        |end_commit_log_offset|hash_slot_count|index_count|   ...
+-----------------+-----------------------+---------------------+---------------+-----------+
|20261121110042164|2026-11-21 11:00:42.15 |51963                |96             |500        |
|20261121110049397|2026-11-21 11:00:49.397|106416               |98             |500        |
""",
)

COMPACTED_MESSAGES = Table(
    "compacted_messages",
    summary="what consumers of compacted topics get",
    row="a record in the copy of a compacted topic, with every field: what consumers of the topic get",
    about="""\
With enableCompaction, a broker answers pulls of a topic with cleanup.policy=COMPACTION from copies of its messages
(`compaction/`). The columns are those of messages; commit_log_offset is the offset in the copy, and offset_message_id
has this offset, as a client shows it. The log is not read. `compaction_states` says which of these messages the next
compaction removes, and which have damage, such as a missing unit, because of which consumers do not get them.

A condition on topic or queue_id selects the folders of copies. So it does not find a damaged record that names another
queue than its folder, which a read without the condition has; `compaction_states` has a problem for it.
""",
    columns=MESSAGES.columns,
    options=OF_QUEUE_LOGS,
)

COMPACTION_STATES = Table(
    "compaction_states",
    summary="which messages of compacted topics consumers get, and why not the others",
    row="a message in the copy of a compacted topic, or one of the log that consumers do not get",
    about="""\
A compaction keeps the newest message of each key; the key is the whole property KEYS. state: NEWEST,
no message of the queue with this key is newer; SUPERSEDED, one is, in the copy or in the log, so the next compaction
removes this one; DELETED, the newest message of the key has no body, and the next compaction removes the key.
Consumers get the messages of these three states: `compacted_messages` has every field of them.

The other rows are what consumers do not get: NO_KEY, a message of the log without a key never comes into the copy;
MISSING, the log has the newest message of a key, and the copy does not have it (yet); DAMAGED, bytes of the copy are
not a record; NO_RECORD, a unit of the copy's queue leads to no record. The whole log is read, in one process.
""",
    columns=(
        Column("topic", "STRING", "the topic", 1),
        Column("queue_id", "INT", "the number of the queue", 2),
        Column("queue_offset", "BIGINT", "the offset in the queue", 3),
        Column("key", "STRING", "the property KEYS", 4),
        Column("state", "STRING", "the state; help(spark_mq.RocketMQDataSource) explains the values", 5),
        Column("problem", "STRING", "the problem of the copy, or of the message's unit there, else NULL", 6),
        Column("tags", "STRING", "the tag", 8),
        Column("store_timestamp", "TIMESTAMP", "when the broker stored the message", 7),
        Column("store_size", "INT", "bytes of the record", 11),
        Column("offset_in_copy", "BIGINT", "the offset of the record in the copy; NULL if it is not there", 9),
        Column(
            "commit_log_offset", "BIGINT", "the offset in the commit log; NULL if the message has expired there", 10
        ),
    ),
    options=(TOPIC,),
    rows="spark_mq.store.compaction.compaction_states",
    noun="message",
    example="""\
+------+--------+------------+---------+----------+-----------------------+--------------+
|topic |queue_id|queue_offset|key      |state     |store_timestamp        |offset_in_copy|   ...
+------+--------+------------+---------+----------+-----------------------+--------------+
|b1comp|0       |5           |K4       |NEWEST    |2026-11-24 19:49:14.443|4611          |
|b1comp|0       |6           |K10      |SUPERSEDED|2026-11-24 19:49:14.673|5189          |
""",
)

INDEX_ENTRIES = Table(
    "index_entries",
    summary="the entries of the index files, and the records of an index in RocksDB",
    row="an entry of an index file, or a record of the index in RocksDB",
    about="""\
Records of an index in RocksDB (`indexRocksDBEnable`) have the name of its folder, `rocksdbstore`, as `file`; only they
have text: the columns from `topic` on.
""",
    columns=(
        Column("file", "STRING", "the name of the file, or of the folder of the database"),
        Column("entry", "INT", "the number of the entry in its file"),
        Column("key_hash", "INT", "the hash of topic and key"),
        Column("commit_log_offset", "BIGINT", "the commit log offset of the entry's message"),
        Column("time_difference", "INT", "seconds from the file's begin_timestamp to the message"),
        Column("previous_entry", "INT", "the number of the entry before it in the same slot, 0 if there is none"),
        Column("topic", "STRING", "the topic"),
        Column("index_type", "STRING", "K: a key of KEYS; T: the tags; U: the unique key"),
        Column("key", "STRING", "the key, the tags or the unique key"),
        Column("unique_key", "STRING", "the unique key of the message"),
        Column("store_timestamp", "TIMESTAMP", "the store time of the message"),
    ),
    options=(_INDEX_CONF,),
    example="""\
+-----------------+-----+----------+-----------------+---------------+--------------+
|file             |entry|key_hash  |commit_log_offset|time_difference|previous_entry|
+-----------------+-----+----------+-----------------+---------------+--------------+
|20261121110042164|1    |547811466 |0                |0              |0             |
|20261121110042164|2    |1771066142|0                |0              |0             |
""",
)

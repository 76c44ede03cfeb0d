"""What the tables of stores and archives contain, and what their columns mean: for SHOW TABLES and DESCRIBE."""

from __future__ import annotations

from spark_mq.source.options import Table

TABLE_COMMENTS = {
    Table.MESSAGES: "the messages of the commit log",
    Table.MESSAGES_BY_KEY: "the keys of messages, each with its message; the index files find a key of a topic",
    Table.CONSUME_QUEUE: "the units of the consume queues",
    Table.SEGMENTS: "the files of the commit log, their state and problems",
    Table.QUEUES: "the consume queues, their offsets, times and problems",
    Table.TOPICS: "the topics, their settings, number of messages and problems",
    Table.CONSUMER_OFFSETS: "the offsets of consumer groups, and their lag",
    Table.INDEX_FILES: "the headers of the index files",
    Table.INDEX_ENTRIES: "the entries of the index files",
}
"""By table of a store: what its rows are."""

ARCHIVE_TABLE_COMMENTS = {
    "messages": "the archived messages",
    "keys": "the keys of archived messages, and where the messages are",
    "segments": "the files of the archived commit logs",
    "snapshots": "the files of config/, and checkpoint, at the times of archiving",
}
"""By table of an archive: what its rows are."""

_OFFSET = "commit log offset"
_COMMENTS = {
    "commit_log_offset": "the commit log offset at which the message starts",
    "store_size": "bytes of the record",
    "offset_message_id": "the message id that a broker makes of its address and the commit log offset",
    "topic": "the topic",
    "queue_id": "the queue of the topic",
    "queue_offset": "the offset in the queue",
    "tags": "property TAGS",
    "keys": "property KEYS, split at spaces",
    "unique_key": "the message id that the producer got (property UNIQ_KEY)",
    "flag": "the producer's flag",
    "sys_flag": "the broker's flags: compression, transaction type, IPv6 addresses",
    "transaction_type": "NONE, PREPARED, COMMIT or ROLLBACK",
    "born_timestamp": "the time at which the producer made the message",
    "born_host": "the producer's address",
    "store_timestamp": "the time at which the broker stored the message",
    "store_host": "the broker's address",
    "reconsume_times": "how often a consumer asked for the message again",
    "prepared_transaction_offset": "of a transaction: the commit log offset of its prepared message",
    "body_crc": "the CRC-32 of the stored body",
    "body": "the body, decompressed",
    "properties": "all properties",
    "_corrupt_record": "the problem of a damaged record, else NULL",
    "born_timestamp_millis": "born_timestamp, milliseconds since 1970",
    "store_timestamp_millis": "store_timestamp, milliseconds since 1970",
    "properties_bytes": "the bytes of all properties",
    "stored_body": "the body as it is stored, perhaps compressed",
    "encoded_body": "the stored body if body differs from it",
    "key": "one key of the message",
    "key_type": "KEYS or UNIQ_KEY: the property that has the key",
    "tags_code": "the hash of the tags, or of a delayed message its delivery time",
    "state": "the state; help(spark_mq.RocketMQDataSource) explains the values",
    "problem": "the problem that a quick check finds, else NULL",
    "file": "the name of the file",
    "file_size": "bytes of the file",
    "end_offset": f"the {_OFFSET} at which the live records end",
    "first_store_timestamp": "the store time of the first message",
    "last_store_timestamp": "the store time of the last message",
    "modification_timestamp": "the time at which the file was last written",
    "min_offset": "the first queue offset that a broker offers",
    "max_offset": "the queue offset after the last message",
    "first_commit_log_offset": f"the {_OFFSET} of the first message",
    "last_commit_log_offset": f"the {_OFFSET} of the last message",
    "file_count": "the number of the queue's files",
    "perm": "permissions: 2 write, 4 read, 6 both",
    "read_queue_nums": "the number of queues for consumers",
    "write_queue_nums": "the number of queues for producers",
    "topic_filter_type": "how consumers filter by tags",
    "topic_sys_flag": "the broker's flags of the topic",
    "is_order": "whether the topic is ordered",
    "attributes": "the attributes of the topic, such as its message type",
    "queue_count": "the number of queues that have files",
    "message_count": "the number of messages that the queues offer",
    "consumer_group": "the consumer group",
    "consumer_offset": "the queue offset of the next message of the group",
    "lag": "max_offset minus consumer_offset; NULL if it is not certain",
    "last_consumed_timestamp": "the store time of the last message that the group consumed",
    "begin_timestamp": "the store time of the file's first message",
    "end_timestamp": "the store time of the file's last message",
    "begin_commit_log_offset": f"the {_OFFSET} of the file's first message",
    "end_commit_log_offset": f"the {_OFFSET} of the file's last message",
    "hash_slot_count": "the number of slots in use",
    "index_count": "the number of entries, plus 1",
    "entry": "the number of the entry in its file",
    "key_hash": "the hash of topic and key",
    "time_difference": "seconds from the file's begin_timestamp to the message",
    "previous_entry": "the number of the entry before it in the same slot, 0 if there is none",
}
_COMMENTS_OF_TABLE = {
    (Table.SEGMENTS, "commit_log_offset"): f"the {_OFFSET} at which the file starts",
    (Table.CONSUME_QUEUE, "commit_log_offset"): f"the {_OFFSET} of the unit's message",
    (Table.CONSUME_QUEUE, "store_size"): "bytes of the message's record",
    (Table.INDEX_ENTRIES, "commit_log_offset"): f"the {_OFFSET} of the entry's message",
    (Table.QUEUES, "queue_id"): "the number of the queue",
}


def comment_of(table: Table, column: str) -> str:
    """What a column of a store's table means; an empty text if that is not known."""
    return _COMMENTS_OF_TABLE.get((table, column), _COMMENTS.get(column, ""))

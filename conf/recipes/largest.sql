-- The `count` messages that take the most bytes of the log. `body_size` is the size of the decompressed body.
SELECT
    cluster, broker, topic, queue_id, queue_offset, store_timestamp, store_size, octet_length(body) AS body_size, tags,
    keys, offset_message_id
FROM history
WHERE topic IS NOT NULL
ORDER BY store_size DESC, cluster, broker, store, commit_log_offset
LIMIT ${count};

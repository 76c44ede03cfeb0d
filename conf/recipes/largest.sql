-- The `count` messages that take most of the log. `body_size` is that of the body as consumers get it, decompressed.
SELECT
    cluster, broker, topic, queue_id, queue_offset, store_timestamp, store_size, octet_length(body) AS body_size, tags,
    keys, offset_message_id
FROM history
WHERE topic IS NOT NULL
ORDER BY store_size DESC, cluster, broker, store, commit_log_offset
LIMIT ${count};

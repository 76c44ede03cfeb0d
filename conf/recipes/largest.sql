-- The `count` messages that take the most bytes of the log. `body_size` is the size of the decompressed body.
--
--     spark-sql ... -i conf/history.sql --hivevar count=20 -f conf/recipes/largest.sql
--
-- The comment of conf/history.sql has the rest of the line, in place of the dots.
SELECT
    cluster, broker, topic, queue_id, queue_offset, store_timestamp, store_size, octet_length(body) AS body_size, tags,
    keys, offset_message_id
FROM history
WHERE topic IS NOT NULL
ORDER BY store_size DESC, cluster, broker, store, commit_log_offset
LIMIT ${count};

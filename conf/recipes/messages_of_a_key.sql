-- The messages of topic `topic` that have `key` as one of their keys or as unique key, the newest first.
--
--     spark-sql ... -i conf/history.sql --hivevar topic=orders --hivevar key=order-42 \
--         -f conf/recipes/messages_of_a_key.sql
--
-- The comment of conf/history.sql has the rest of the line, in place of the dots.
SELECT cluster, broker, topic, queue_id, queue_offset, store_timestamp, tags, keys, unique_key, offset_message_id, body
FROM history
WHERE topic = '${topic}' AND (array_contains(keys, '${key}') OR unique_key = '${key}')
ORDER BY store_timestamp DESC, commit_log_offset DESC, cluster, broker, store;

-- The messages of topic `topic` that have `key` as one of their keys or as unique key, the newest first.
SELECT cluster, broker, topic, queue_id, queue_offset, store_timestamp, tags, keys, unique_key, offset_message_id, body
FROM history
WHERE topic = '${topic}' AND (array_contains(keys, '${key}') OR unique_key = '${key}')
ORDER BY store_timestamp DESC, commit_log_offset DESC, cluster, broker, store;

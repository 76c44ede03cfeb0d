-- The messages of topic `topic` whose property `property` is `value`, in the order in which they were stored.
SELECT cluster, broker, topic, queue_id, queue_offset, store_timestamp, tags, keys, properties, offset_message_id, body
FROM history
WHERE topic = '${topic}' AND properties['${property}'] = '${value}'
ORDER BY store_timestamp, cluster, broker, store, commit_log_offset;

-- The messages of topic `topic` whose property `property` is `value`, in the order in which they were stored.
--
--     spark-sql ... -i conf/history.sql --hivevar topic=orders --hivevar property=region --hivevar value=eu \
--         -f conf/recipes/by_property.sql
--
-- The comment of conf/history.sql has the rest of the line, in place of the dots.
SELECT cluster, broker, topic, queue_id, queue_offset, store_timestamp, tags, keys, properties, offset_message_id, body
FROM history
WHERE topic = '${topic}' AND properties['${property}'] = '${value}'
ORDER BY store_timestamp, cluster, broker, store, commit_log_offset;

-- Messages and bytes by minute and topic, for store times from `begin` (inclusive) to `end` (exclusive), such as
-- '2026-11-21 11:00:00'.
--
--     spark-sql ... -i conf/history.sql --hivevar begin='2026-11-21 11:00:00' --hivevar end='2026-11-21 12:00:00' \
--         -f conf/recipes/per_minute_and_topic.sql
--
-- The comment of conf/history.sql has the rest of the line, in place of the dots.
SELECT date_trunc('minute', store_timestamp) AS minute, topic, count(*) AS messages, sum(store_size) AS bytes
FROM history
WHERE topic IS NOT NULL AND store_timestamp >= TIMESTAMP '${begin}' AND store_timestamp < TIMESTAMP '${end}'
GROUP BY minute, topic
ORDER BY minute, topic;

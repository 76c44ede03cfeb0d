-- Messages and bytes by minute and topic, for store times from `begin` (inclusive) to `end` (exclusive), such as
-- '2026-11-21 11:00:00'.
SELECT date_trunc('minute', store_timestamp) AS minute, topic, count(*) AS messages, sum(store_size) AS bytes
FROM history
WHERE topic IS NOT NULL AND store_timestamp >= TIMESTAMP '${begin}' AND store_timestamp < TIMESTAMP '${end}'
GROUP BY minute, topic
ORDER BY minute, topic;

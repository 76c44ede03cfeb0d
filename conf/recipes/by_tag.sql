-- Messages of topic `topic` by tag, and the store times of each tag's first and last message. NULL means no tag.
--
--     spark-sql ... -i conf/history.sql --hivevar topic=orders -f conf/recipes/by_tag.sql
--
-- The comment of conf/history.sql has the rest of the line, in place of the dots.
SELECT
    tags, count(*) AS messages, sum(store_size) AS bytes, min(store_timestamp) AS first, max(store_timestamp) AS last
FROM history
WHERE topic = '${topic}'
GROUP BY tags
ORDER BY messages DESC, tags;

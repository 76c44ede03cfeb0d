-- The tables of a store, for the spark-sql shell:
--
--     spark-sql --hivevar store=/data/store -i conf/tables.sql
--     spark-sql --hivevar store=/data/store -i conf/tables.sql -e "SELECT topic, count(*) FROM messages GROUP BY topic"
--
-- A view keeps its options, so a view of your own can read less: OPTIONS (path '${store}', topic 'orders'). Columns behind
-- its name are all that it reads, which is several times as fast without bodies:
--
--     CREATE TEMPORARY VIEW places (topic STRING, queue_id INT, queue_offset BIGINT) USING rocketmq OPTIONS (path '${store}');

CREATE OR REPLACE TEMPORARY VIEW messages
USING rocketmq
OPTIONS (path '${store}');

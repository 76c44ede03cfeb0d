-- The tables of a store, for the spark-sql shell:
--
--     spark-sql --hivevar store=/data/store -i conf/tables.sql
--     spark-sql --hivevar store=/data/store -i conf/tables.sql -e "SELECT topic, count(*) FROM messages GROUP BY topic"
--
-- A view keeps its options: add topic 'orders', startTimestamp '2026-11-20T08:00:00Z', and so on, to read less. Columns
-- in brackets behind USING are the column list: a view that needs no bodies is several times as fast without them.

CREATE OR REPLACE TEMPORARY VIEW messages
USING rocketmq
OPTIONS (path '${store}');

-- The tables of a store, for the spark-sql shell:
--
--     spark-sql --hivevar store=/data/store -i conf/tables.sql
--     spark-sql --hivevar store=/data/store -i conf/tables.sql -e "SELECT topic, count(*) FROM messages GROUP BY topic"
--
-- A view keeps its options, so a view of your own can read less: OPTIONS (path '${store}', topic 'orders'). Columns behind
-- its name are all that it reads, which is several times as fast without bodies:
--
--     CREATE TEMPORARY VIEW places (topic STRING, queue_id INT, queue_offset BIGINT) USING rocketmq OPTIONS (path '${store}');
--
-- Spark plans the read of a view once, with its first query: what a broker appends later shows in a view that is made anew.

CREATE OR REPLACE TEMPORARY VIEW messages
USING rocketmq
OPTIONS (path '${store}');

CREATE OR REPLACE TEMPORARY VIEW consume_queue
USING rocketmq
OPTIONS (path '${store}', table 'consume_queue');

CREATE OR REPLACE TEMPORARY VIEW segments
USING rocketmq
OPTIONS (path '${store}', table 'segments');

CREATE OR REPLACE TEMPORARY VIEW queues
USING rocketmq
OPTIONS (path '${store}', table 'queues');

CREATE OR REPLACE TEMPORARY VIEW topics
USING rocketmq
OPTIONS (path '${store}', table 'topics');

CREATE OR REPLACE TEMPORARY VIEW consumer_offsets
USING rocketmq
OPTIONS (path '${store}', table 'consumer_offsets');

-- index_files and index_entries take the broker's settings too, where its slots and entries are not the defaults:
-- OPTIONS (path '${store}', table 'index_files', brokerConf '/etc/rocketmq/broker.conf').

CREATE OR REPLACE TEMPORARY VIEW index_files
USING rocketmq
OPTIONS (path '${store}', table 'index_files');

CREATE OR REPLACE TEMPORARY VIEW index_entries
USING rocketmq
OPTIONS (path '${store}', table 'index_entries');

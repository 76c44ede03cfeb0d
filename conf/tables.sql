-- The tables of a store, for the spark-sql shell:
--
--     spark-sql --hivevar store=/data/store -i conf/tables.sql
--     spark-sql --hivevar store=/data/store -i conf/tables.sql -e "SELECT topic, count(*) FROM messages GROUP BY topic"
--
-- A view keeps its options, so your own view can read less: OPTIONS (path '${store}', topic 'orders'). If columns
-- follow the view's name, only these columns are read. Without bodies, that is several times as fast:
--
--     CREATE TEMPORARY VIEW tags (topic STRING, tags STRING) USING rocketmq OPTIONS (path '${store}');
--
-- Spark plans the read of a view once, with the view's first query. Create the view again to see what a broker has
-- appended since.
--
-- index_files and index_entries need the broker's settings if its index files do not have the default sizes:
-- OPTIONS (path '${store}', table 'index_files', brokerConf '/etc/rocketmq/broker.conf').

CREATE OR REPLACE TEMPORARY VIEW messages
USING rocketmq
OPTIONS (path '${store}');

CREATE OR REPLACE TEMPORARY VIEW messages_by_key
USING rocketmq
OPTIONS (path '${store}', table 'messages_by_key');

CREATE OR REPLACE TEMPORARY VIEW consume_queue
USING rocketmq
OPTIONS (path '${store}', table 'consume_queue');

CREATE OR REPLACE TEMPORARY VIEW segments
USING rocketmq
OPTIONS (path '${store}', table 'segments');

CREATE OR REPLACE TEMPORARY VIEW retention
USING rocketmq
OPTIONS (path '${store}', table 'retention');

CREATE OR REPLACE TEMPORARY VIEW queues
USING rocketmq
OPTIONS (path '${store}', table 'queues');

CREATE OR REPLACE TEMPORARY VIEW checkpoint
USING rocketmq
OPTIONS (path '${store}', table 'checkpoint');

CREATE OR REPLACE TEMPORARY VIEW epochs
USING rocketmq
OPTIONS (path '${store}', table 'epochs');

CREATE OR REPLACE TEMPORARY VIEW index_files
USING rocketmq
OPTIONS (path '${store}', table 'index_files');

CREATE OR REPLACE TEMPORARY VIEW compacted_messages
USING rocketmq
OPTIONS (path '${store}', table 'compacted_messages');

CREATE OR REPLACE TEMPORARY VIEW compaction_states
USING rocketmq
OPTIONS (path '${store}', table 'compaction_states');

CREATE OR REPLACE TEMPORARY VIEW index_entries
USING rocketmq
OPTIONS (path '${store}', table 'index_entries');

CREATE OR REPLACE TEMPORARY VIEW tiered_messages
USING rocketmq
OPTIONS (path '${store}', table 'tiered_messages');

CREATE OR REPLACE TEMPORARY VIEW tiered_queues
USING rocketmq
OPTIONS (path '${store}', table 'tiered_queues');

CREATE OR REPLACE TEMPORARY VIEW tiered_segments
USING rocketmq
OPTIONS (path '${store}', table 'tiered_segments');

CREATE OR REPLACE TEMPORARY VIEW tiered_units
USING rocketmq
OPTIONS (path '${store}', table 'tiered_units');

CREATE OR REPLACE TEMPORARY VIEW tiered_index_entries
USING rocketmq
OPTIONS (path '${store}', table 'tiered_index_entries');

CREATE OR REPLACE TEMPORARY VIEW topics
USING rocketmq
OPTIONS (path '${store}', table 'topics');

CREATE OR REPLACE TEMPORARY VIEW consumer_offsets
USING rocketmq
OPTIONS (path '${store}', table 'consumer_offsets');

CREATE OR REPLACE TEMPORARY VIEW subscription_groups
USING rocketmq
OPTIONS (path '${store}', table 'subscription_groups');

CREATE OR REPLACE TEMPORARY VIEW consumer_filters
USING rocketmq
OPTIONS (path '${store}', table 'consumer_filters');

CREATE OR REPLACE TEMPORARY VIEW delay_offsets
USING rocketmq
OPTIONS (path '${store}', table 'delay_offsets');

CREATE OR REPLACE TEMPORARY VIEW begin_offsets
USING rocketmq
OPTIONS (path '${store}', table 'begin_offsets');

CREATE OR REPLACE TEMPORARY VIEW transactions
USING rocketmq
OPTIONS (path '${store}', table 'transactions');

CREATE OR REPLACE TEMPORARY VIEW delayed
USING rocketmq
OPTIONS (path '${store}', table 'delayed');

CREATE OR REPLACE TEMPORARY VIEW consumer_progress
USING rocketmq
OPTIONS (path '${store}', table 'consumer_progress');

CREATE OR REPLACE TEMPORARY VIEW retries
USING rocketmq
OPTIONS (path '${store}', table 'retries');

CREATE OR REPLACE TEMPORARY VIEW dead_letters
USING rocketmq
OPTIONS (path '${store}', table 'dead_letters');

CREATE OR REPLACE TEMPORARY VIEW traces
USING rocketmq
OPTIONS (path '${store}', table 'traces');

CREATE OR REPLACE TEMPORARY VIEW duplicates
USING rocketmq
OPTIONS (path '${store}', table 'duplicates');

CREATE OR REPLACE TEMPORARY VIEW hot_keys
USING rocketmq
OPTIONS (path '${store}', table 'hot_keys');

CREATE OR REPLACE TEMPORARY VIEW rates
USING rocketmq
OPTIONS (path '${store}', table 'rates');

CREATE OR REPLACE TEMPORARY VIEW skew
USING rocketmq
OPTIONS (path '${store}', table 'skew');

-- One view of an archive and of the store that it is made from: `history`, for the spark-sql shell.
--
--     spark-sql --hivevar 'archive=delta.`/lake/messages`' --hivevar store=/data/store \
--         --hivevar cluster=DefaultCluster --hivevar broker=DEFAULT_BROKER --hivevar store_name=/data/store \
--         -i conf/history.sql --hivevar topic=orders --hivevar key=order-42 -f conf/recipes/messages_of_a_key.sql
--
-- `archive` is the TABLE of `spark-mq archive`, as SQL calls it: with delta.`...` around a path. `cluster`, `broker` and
-- `store_name` are what its rows say of this store, those above if `spark-mq archive` was told no other. The shell needs
-- Delta Lake.
--
-- The seam: what the archive has of the store is read from the archive, and what lies behind its last message is read
-- from the store. So no message comes twice, and none is missing, while the broker appends, the archive grows, and
-- segments that were archived expire: each query looks anew where the archive ends, in the version that it reads.
--
-- Spark plans the read of a store once for a view, with its first query: run this file again to see what the broker
-- appended since, and after segments expired. It takes no longer than to look for the archive's end.

-- What is archived need not be read from the store, for the archive only grows.
DECLARE OR REPLACE VARIABLE history_statement STRING;

SET VAR history_statement = (
    SELECT
        "CREATE OR REPLACE TEMPORARY VIEW history_store USING rocketmq OPTIONS (path '${store}', startOffset '"
            || coalesce(max(commit_log_offset), 0) || "')"
    FROM ${archive}
    WHERE cluster = '${cluster}' AND broker = '${broker}' AND store = '${store_name}'
);

EXECUTE IMMEDIATE history_statement;

CREATE OR REPLACE TEMPORARY VIEW history_archive AS
SELECT * FROM ${archive};

-- Rows of all stores in the archive, with columns `cluster`, `broker`, `store` and those of `messages`.
CREATE OR REPLACE TEMPORARY VIEW history AS
SELECT
    cluster, broker, store, commit_log_offset, store_size, offset_message_id, topic, queue_id, queue_offset, tags, keys,
    unique_key, flag, sys_flag, transaction_type, born_timestamp, born_host, store_timestamp, store_host,
    reconsume_times, prepared_transaction_offset, body_crc, body, properties, _corrupt_record
FROM history_archive
UNION ALL
SELECT '${cluster}', '${broker}', '${store_name}', *
FROM history_store
-- Also a row of damage has an offset. Where nothing is archived yet, all is behind it.
WHERE commit_log_offset > coalesce(
    (
        SELECT max(commit_log_offset) FROM history_archive
        WHERE cluster = '${cluster}' AND broker = '${broker}' AND store = '${store_name}'
    ),
    -1
);

-- How far consumers are. The archive does not have it.
CREATE OR REPLACE TEMPORARY VIEW consumer_offsets
USING rocketmq
OPTIONS (path '${store}', table 'consumer_offsets');

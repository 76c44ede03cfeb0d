-- One view of an archive and of the store that it is made from: `history`, for the spark-sql shell.
--
--     spark-sql --hivevar archive=/lake/messages --hivevar store=/data/store \
--         --hivevar cluster=DefaultCluster --hivevar broker=DEFAULT_BROKER --hivevar store_name=/data/store \
--         -i conf/history.sql --hivevar topic=orders --hivevar key=order-42 -f conf/recipes/messages_of_a_key.sql
--
-- `archive` is the TABLE of `spark-mq archive`, a path or a name in the catalog. `cluster`, `broker` and `store_name`
-- are what its rows say of this store; those above are what they say if `spark-mq archive` was told no other. The shell
-- needs Delta Lake.
--
-- The seam: what the archive has of the store is read from the archive, and what lies behind its last message is read
-- from the store. Each query looks anew where that is, and reads one version of the archive. So no message comes twice
-- and none is missing while the broker appends, the archive grows, and segments that are archived expire.

-- To read the whole log for its end would be a waste. So the store is read from where the archive ends now; the archive
-- only grows. To run this file again moves that place, and takes a fraction of the time of a query.
DECLARE OR REPLACE VARIABLE history_statement STRING;

SET VAR history_statement = (
    SELECT
        "CREATE OR REPLACE TEMPORARY VIEW history_store USING rocketmq OPTIONS (path '${store}', startOffset '"
            || coalesce(max(commit_log_offset), 0) || "')"
    FROM IDENTIFIER(if('${archive}' LIKE '%/%', 'delta.`${archive}`', '${archive}'))
    WHERE cluster = '${cluster}' AND broker = '${broker}' AND store = '${store_name}'
);

EXECUTE IMMEDIATE history_statement;

CREATE OR REPLACE TEMPORARY VIEW history_archive AS
SELECT * FROM IDENTIFIER(if('${archive}' LIKE '%/%', 'delta.`${archive}`', '${archive}'));

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

-- How far consumers are; the archive has none of it.
CREATE OR REPLACE TEMPORARY VIEW consumer_offsets
USING rocketmq
OPTIONS (path '${store}', table 'consumer_offsets');

-- The view `history` of an archive and the store that is archived in it, for the spark-sql shell.
--
--     spark-sql --properties-file conf/delta-defaults.conf --load-spark-defaults \
--         --hivevar 'archive=delta.`/lake/messages`' --hivevar store=/data/store \
--         --hivevar cluster=DefaultCluster --hivevar broker=DEFAULT_BROKER --hivevar store_name=/data/store \
--         -i conf/history.sql --hivevar topic=orders --hivevar key=order-42 -f conf/recipes/messages_of_a_key.sql
--
-- With -e "SELECT ..." in place of -f, the shell runs a query of yours. With neither, it opens a prompt.
--
-- `archive` is the TABLE of `spark-mq archive`, as SQL names it: a path is written delta.`...`. `cluster`, `broker` and
-- `store_name` are the values in the archive's rows of this store. The values above are those that `spark-mq archive`
-- writes unless other values are given. conf/delta-defaults.conf gives the shell Delta Lake, and makes it print the names
-- of the columns before the rows. For a statement without columns, as all in this file, the shell then prints a line
-- "Response code". Add | grep -vx 'Response code' to leave these lines out.
--
-- Messages up to the last archived message of the store are read from the archive, later messages from the store. No
-- message is returned twice and no message is missing, even while the broker appends, the archive grows, and archived
-- segments expire: each query looks up where the archive ends, in the version of the archive that it reads.
--
-- Spark plans the read of a store once for each view, with the view's first query. Run this file again to see what the
-- broker has appended since, and after segments have expired. That takes only the time to look up the archive's end.

-- Archived messages need not be read from the store, because the archive only grows.
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

-- Rows of all stores in the archive, with the columns `cluster`, `broker`, `store` and those of `messages`.
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

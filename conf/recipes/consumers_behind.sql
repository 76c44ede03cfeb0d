-- Consumer groups of the store that have not read all of a queue, the largest lag first. `waiting_since` is the store
-- time of the next message that the group will consume. It is known even if the message has expired from the store
-- (`TOO_SMALL`), because the archive keeps it. Groups whose lag cannot be known, because a queue was lost or is damaged,
-- come first. `problem` says why.
--
--     spark-sql ... -i conf/history.sql -f conf/recipes/consumers_behind.sql
--
-- The comment of conf/history.sql has the rest of the line, in place of the dots.
SELECT
    behind.consumer_group, behind.topic, behind.queue_id, behind.consumer_offset, behind.max_offset, behind.lag,
    behind.state, history.store_timestamp AS waiting_since, behind.problem
FROM consumer_offsets AS behind
LEFT JOIN history
    ON history.cluster = '${cluster}' AND history.broker = '${broker}' AND history.store = '${store_name}'
    AND history.topic = behind.topic AND history.queue_id = behind.queue_id
    AND history.queue_offset = behind.consumer_offset
    -- Messages of the other transaction types are in no queue.
    AND history.transaction_type IN ('NONE', 'COMMIT')
WHERE behind.lag > 0 OR behind.problem IS NOT NULL
ORDER BY behind.lag DESC NULLS FIRST, behind.consumer_group, behind.topic, behind.queue_id;

"""What messages mean: transactions, delays, retries, dead letters, traces, and the life of one message.

No Spark. `spark_mq.tables` declares each table. Here it has a pure function from Arrow tables to an Arrow table, and a
function that reads a source (a store, or a store in an archive) and calls it.

Read first `selected_messages` (one read of the log, and what a table needs of a store), then a table: `transactions`
and `delayed` (with `outcomes`), `retries` (with `retry_copies`, `retry_topic`, `popped_messages`), `consumer_progress`,
`traces`, `statistics`. `message_arrays` has what several of them do with columns.
`why_not_consumed` and `life` are about one message, and need look-ups only. A state that a store
does not prove is UNKNOWN, with a reason.
"""

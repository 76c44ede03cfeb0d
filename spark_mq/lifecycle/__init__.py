"""What messages mean: transactions, delays, retries, dead letters, traces, and the life of one message.

No Spark. `spark_mq.tables` declares each table. Here it has a pure function from Arrow tables to an Arrow table, and a
function that reads a source (a store, or a store in an archive) and calls it. A state that a store does not prove is
UNKNOWN, with a reason.

Read `messages` first (one read of the log), then a table: `transactions`, `delays`, `consumption`, `traces` or
`statistics`. `life` is about one message, and needs look-ups only.
"""

"""What the bytes of RocketMQ's files mean: plain Python, one record, unit or index file at a time.

Read in this order:

1. the commit log: `record` (the table of a record's bytes), `dledger` (the head before it in a DLedger log),
   `properties`, `message_id`, `system_topic`, `compression`, `java_text`, `broker_version` (which rules differ by
   version);
2. a message as a row: `message_schema` (columns and types), `message_row`, `timestamp`, `arrow_array`,
   `pieces`; `amounts` (numbers as text);
3. the consume queue: `consume_queue`, `consume_queue_ext`, `bloom_filter`;
4. the index: `dispatch` (keys and queues of a message), `index_file` (the table of a file's bytes, which file gets an
   entry, and look-ups).

`array_types` names the arrays that kernels take. `kernels` has the same rules for many records at once.

A module here may import NumPy, pyarrow, `spark_mq.errors` and other modules of this package; not numba (so nothing of
`kernels`), not Spark, no files.
"""

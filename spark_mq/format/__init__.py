"""What the bytes of RocketMQ's files mean: plain Python, one record, unit or index file at a time.

Read in this order:

1. the commit log: `record` (the table of a record's bytes), `sys_flag`, `properties`, `message_id`, `system_topic`,
   `compression`, `java_text`;
2. a message as a row: `message_schema` (columns and types), `message_row`, `timestamp`, `arrow_array`;
3. the consume queue: `consume_queue`;
4. the index: `message_keys`, `index_file` (the table of a file's bytes), `index_placement` (which file gets an entry),
   `index_query` (look-ups), `index_check`.

`array_types` names the arrays that kernels take. `kernels` has the same rules for many records at once.

A module here may import NumPy, pyarrow, `spark_mq.errors` and other modules of this package; not numba (so nothing of
`kernels`), not Spark, no files.
"""

"""The index files of a store: look-ups of messages by key.

Read in this order: `folder` (which index files a store has), `names` (how a broker names them), `file_times` (which of
them can have messages of a time range), `coverage` (which files are valid, and the range of the log that each covers),
`checked_index` (the same for another process), `key_index` (look-ups in all files, and in the log for ranges that no
file covers), `end` (where an index ends, for a job that continues it), `tables` (headers and entries as rows).

May import `spark_mq.store.log` and `spark_mq.store.config`, and not `spark_mq.store.queue`.
"""

"""The index files of a store: look-ups of messages by key.

Read in this order: `file_names` (how a broker names index files), `folder` (which ones a store has, and where they
end), `coverage` (which files are valid, and the range of the log that each covers), `key_index` (look-ups in all files,
and in the log for ranges that no file covers; and what a broker answers), `index_database` (the same keys in RocksDB).

May import `spark_mq.store.log` and `spark_mq.store.config`, and not `spark_mq.store.queue`.
"""

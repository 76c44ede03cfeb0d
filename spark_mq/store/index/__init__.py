"""The index files of a store: look-ups of messages by key.

Read in this order: `folder` (which index files a store has, and where they end), `names` (how a broker names them, and
the times that a name shows), `tag_runs` (which messages have an entry for their tags), `coverage` (which files are
valid, and the range of the log that each covers), `key_index` (look-ups in all files, and in the log for ranges that no
file covers), `broker_answer` (what a broker answers), `tables` (headers and entries as rows).

May import `spark_mq.store.log` and `spark_mq.store.config`, and not `spark_mq.store.queue`.
"""

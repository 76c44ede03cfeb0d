"""One store directory of a broker: what can be read from it, and its lock. No Spark here.

Read in this order:

1. `config`: what a store's directory is, and the files that describe the broker;
2. `log`: the commit log, its segments and records;
3. `queue` and `index`: the consume queues and the index files, which save work and prove nothing by themselves;
4. `live_end`: where the live records of the log end, found quickly;
5. `message_store`: `MessageStore`, the look-ups that users call;
6. `message_selection`, `unique_key_search`, `followed_log`: messages of a topic in either order, messages of an unknown
   topic, and new messages;
7. `segment_state`, `queue_state` and `metadata_tables`: the state of segments, queues, topics and consumer offsets;
8. `store_lock`: the lock that a broker, or a job that writes, has;
9. `settled_files` and `state_memory`: whether files are the same as before, and what was found out about them.

May import `spark_mq.io`, `spark_mq.format` and `spark_mq.errors`. Point look-ups must not import numba, so modules that
need the kernels import them inside functions, or are themselves imported inside functions.
"""

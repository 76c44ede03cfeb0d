"""The commit log of a store: its segments, the records in them, and ranges and splits of it.

Read in this order:

1. the files: `corrupt_range`, `data_end`, `segment_files` (which files are segments), `commit_log`;
2. single records, in plain Python: `record_lookup`, `log_range`, `record_mark`, `last_record`;
3. many records, with kernels: `segment_source` (bytes of a segment), `record_reader` (records of a segment),
   `live_reader` (the last segment, up to the live end), `joined_chunks` (chunks that damage separates);
4. work for tasks: `splits`, `time_pruning` (which splits a time range needs), `offset_range`, `split_reader` (reads one
   split), `boundaries` (offsets at which a range can start or stop), `scan` (messages that match a filter),
   `backward_scan` (the same, newest first).

`record_reader`, `live_reader`, `joined_chunks`, `split_reader` and `boundaries` import numba; the other modules do not.
May import `spark_mq.store.config`, and not queues or indexes.
"""

"""The commit log of a store: its segments, the records in them, and ranges and splits of it.

Read in this order:

1. the files: `segment_files` (which files are segments), `commit_log` (segments, and their splits for tasks);
2. parts of the log, and single records, in plain Python: `log_range`, `record_lookup`;
3. many records, with kernels: `dledger_log` (entries of a DLedger node), `record_reader` (records of a segment),
   `live_reader` (of the last segment, up to the live end), `recovery_walk` (as a broker reads them when it starts);
4. work for tasks: `split_reader` (reads one split, and finds offsets at which a range can start or stop),
   `scan` (messages that match a filter).

`dledger_log`, `record_reader`, `live_reader`, `recovery_walk` and `split_reader` import numba; the others do not. May
import `spark_mq.store.config`, and not queues or indexes.
"""

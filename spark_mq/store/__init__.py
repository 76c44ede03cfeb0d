"""One store directory of a broker: what can be read from it, and its lock. No Spark here.

Read in this order:

1. `config`: what a store's directory is, and the files that describe the broker;
2. `log`: the commit log, its segments and records;
3. `queue` and `index`: the consume queues and the index files, which save work and prove nothing by themselves;
4. `live_end`: where the live records of the log end, found quickly; `store_lock`: the lock that a broker, or a job that
   writes, has, and whether files are as before;
5. `message_store`: `MessageStore`, the look-ups that users call, with `message_selection` (messages of a topic,
   oldest or newest first, and a message of an unknown topic) and `many_keys` (many keys looked up at once);
6. what is there: `file_states` (of segments, queues and index files), `metadata_tables` and `file_tables` (rows of
   tables), `compaction` (what consumers of compacted topics get), `tiered_storage` (what a broker
   uploaded), `broker_versions`, `derived_facts` (what an archive
   keeps of a store);
7. the next boot of a broker: `boot_conditions` (the last stop, version and settings on which it depends),
   `boot_obstacles` (why it does not start), `boot` (from a few facts, by version), `recovery` (record by record, with
   `dispatch_requests`, `starting_queues` and `dispatch_log`),
   `lacking_messages` and, with the whole log, `lacking_scan` (what it loses), `lacking_entries` (what its index
   lacks), `store_state` (all of that for an operator), and `verdict` (the answer in sentences, and what to do);
8. what a broker deletes: `expiry` (which files are old), `retention` (what and who loses by it), `disk_use`.

May import `spark_mq.io`, `spark_mq.format` and `spark_mq.errors`. Point look-ups must not import numba, so modules that
need the kernels import them inside functions, or are themselves imported inside functions.
"""

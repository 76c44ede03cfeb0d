"""An archive: Delta tables that keep the messages of stores for longer than the brokers do, for SQL.

Read in this order:

1. `archive_tables`: the tables of an archive, their columns and file layout, and one store in them;
2. `writer` (one run: `archive`), which uses `streams` (messages and keys), `small_tables` (segments and snapshots, of
   which `snapshot_files` has the files), and `report`; `broker_archive` is one run for a broker of a running cluster;
3. `archived_log`: whether archived messages are those of a log, and renames of one;
4. `last_run` (whether a run would find nothing new), which uses `delta_log`;
5. how tasks write files, and how they are committed: `streams`, `table_file`; `lease` keeps runs apart on S3, and
   `delta` has a session's settings;
6. `maintenance` (deletes and compacts), `archived_messages` (look-ups without Spark);
7. `sql` (archives in SQL) and `history` (the messages of an archive, and what a store or cluster has after them);
8. look-ups by key, and what archived messages mean, by the rules of `spark_mq.lifecycle`: `archived_store`,
   `archive_source` (also which parts of a log an archive has), `archived_tables`.

Delta Lake for Spark writes the tables; its SQL needs nothing but its jars, also with Spark Connect. The package
`deltalake` reads local tables without Spark. It cannot write to them: it refuses tables with clustering.
"""

"""An archive: Delta tables that keep the messages of stores for longer than the brokers do, for SQL.

Read in this order:

1. `archive_tables` (the names of an archive's tables, and one store in them), `tables` (columns and file layout);
2. `writer` (one run: `archive`), which uses `streams` (messages and keys), `segments`, `snapshot`, and `report`;
3. the name of a log: `archived_log` (whether archived messages are those of this log), `renaming`;
4. `last_run` (whether a run would find nothing new), which uses `delta_log`;
5. how tasks write files, and how they are committed: `file_source`, `table_file`, `file_commit`; `lease` keeps runs
   apart on S3, and `delta` has a session's settings;
6. `maintenance` (deletes and compacts), `lookup` (queries by key), `archived_messages` (look-ups without Spark);
7. what archived messages mean, by the rules of `spark_mq.lifecycle`: `archived_store`, `archive_source`,
   `archived_queues`, `archived_life`, `statistics`, and `log_cover` (which parts of a log an archive has).

Delta Lake for Spark writes the tables; its SQL needs nothing but its jars, also with Spark Connect. The package
`deltalake` reads local tables without Spark. It cannot write to them: it refuses tables with clustering.
"""

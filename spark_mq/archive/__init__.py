"""An archive: Delta tables that keep the messages of stores for longer than the brokers do, for SQL.

Read in this order:

1. `archive_tables` (the names of an archive's tables, and one store in them), `tables` (columns and file layout);
2. `writer` (one run: `archive`), which uses `streams` (messages and keys), `segments`, `snapshot`, and `report`;
3. the name of a log: `archived_log` (whether archived messages are those of this log), `renaming`, `checkpoints`;
4. `last_run` (whether a run would find nothing new), which uses `delta_log`;
5. how tasks write files, and how they are committed: `table_rows`, `table_file`, `file_source`, `file_commit`;
6. `maintenance` (deletes and compacts), `lookup` (queries by key), `archived_messages` (look-ups without Spark),
   `archived_stores` (what an archive has);
7. `lifecycle` (what archived messages mean).

`retry` is for conflicts between runs, and `lease` keeps runs apart on S3. `delta` has a session's settings.

Delta Lake for Spark writes the tables; its SQL needs nothing but its jars, also with Spark Connect. The package
`deltalake` reads local tables without Spark. It cannot write to them: it refuses tables with clustering.
"""

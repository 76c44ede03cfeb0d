"""An archive: Delta tables that keep the messages of stores for longer than the brokers do, for SQL.

Read in this order:

1. `archive_tables` (the names of an archive's tables, and of one store in them), `tables` (columns and file layout),
   `store_archive` (one store and its archive);
2. `writer` (one run: `archive`), which uses `streams` (messages and keys), `segments`, `snapshot`, and `report`;
3. the name of a log: `archived_log` (whether archived messages are those of this log), `renaming`, `checkpoints`;
4. `last_run` (whether a run would find nothing new), which uses `delta_log`;
5. how tasks write files, and how they are committed: `table_rows`, `table_file`, `file_source`, `kernel_commit`,
   `row_append`;
6. `maintenance` (deletes and compacts), `lookup` (queries by key), `archived_stores` and `newest_snapshot` (what an
   archive has of a store);
7. `lifecycle` (what archived messages mean).

`retry` is for conflicts between runs, and `lease` keeps runs apart on S3. `commit_metrics` and `progress` are for
counts. `delta` and `hadoop_s3` have a session's settings.
"""

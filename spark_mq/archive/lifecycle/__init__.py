"""What messages mean, out of an archive: the tables of `spark_mq.lifecycle`, also of messages that a broker deleted.

Read `archived_store` first. `archive_source` is a store of an archive as a source of messages, `log_cover` says what
of the log is missing, and `snapshot_files` has the files of `config/`.
"""

"""What a store's directory is, and the files in it that describe the broker: settings, versions, offsets, times.

Read in this order: `store_paths` (names of the files and folders of a store), `store_kind` (which kind of store a
directory contains), `config_file` (the JSON files of `config/`, their backups, the same in RocksDB, and topics),
`offset_files` (those with offsets, rewritten), `consumer_filters`, `checkpoint` (the file of that name), `epochs` (the
masters of a replica), `file_versions` (which versions the files show), `broker_conf` (the broker's settings, which are
not in the store), `named_stores` (several stores).

May import `spark_mq.io`, `spark_mq.format` (not its kernels) and `spark_mq.errors`; nothing else of `spark_mq.store`.
"""

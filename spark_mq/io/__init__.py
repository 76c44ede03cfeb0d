"""Files on any storage: where they are, reading ranges of them, writing them whole. Nothing of RocketMQ.

Read `storage` (what a home of files does) and `location` (a path on one) first, then the homes: `local`, `object_store`
(with `s3`), `hdfs`. `file_reader` has open files and ranges of bytes, `remote_file` what is known of files over a
network, `publish` writes a file whole or not at all, and `rocksdb` reads a database. A module here imports pyarrow, the
clients of storages and `spark_mq.errors`, and no other package of spark_mq.
"""

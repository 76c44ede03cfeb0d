"""Files on any filesystem: where they are, reading ranges of them, writing them whole. Nothing of RocketMQ.

Read `location` (a path or URI) first, then `file_reader` (open files and ranges of bytes), then `publish` (writing a
file whole or not at all). A module here may import pyarrow and `spark_mq.errors`, and no other package of spark_mq.
"""

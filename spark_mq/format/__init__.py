"""Bytes of RocketMQ's files, as Arrow and NumPy values, and back. Pure: no input or output, no Spark.

From one record outwards: `record` (the table of bytes), `scan` (hopping over many), `properties` and `property_scan`
(names and values), `columns` (Arrow columns of messages), `bodies` and `message_batches` (their bodies, and batches
that fit into memory), `dispatch` (what becomes of a message in a queue), `consume_queue` (units and their files),
`index_keys` (what becomes of a message in the index), `index_placement`, `index_put`, `index_file` and `index_query`
(which file an entry goes to, files filled, their bytes, look-ups).
"""

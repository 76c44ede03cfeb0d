"""The consume queues of a store: their files, their units, and the messages to which the units lead.

Read in this order: `folders` (which queues have files), `recovered_queue` (what a start of a broker makes of them),
`queue_database` (queues in RocksDB as such files), `consume_queue` (the units of one queue, its ends, and the extension
to which a unit can lead), `lookup` (what units prove, and which parts of the log must be read for other messages),
`get_message` (messages by queue offset), `offset_by_time`, `batch_consume_queue`, `consume_queue_store` (all queues).
Reads by topic: `unit_runs` (units in the order of the log) and `unit_cover` (the parts of the log for which the units
of all queues account; costs), `unit_reader` (the records of units).

May import `spark_mq.store.log` and `spark_mq.store.config`, and not `spark_mq.store.index`.
"""

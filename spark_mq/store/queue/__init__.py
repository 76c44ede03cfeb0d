"""The consume queues of a store: their files, their units, and the messages to which the units lead.

Read in this order: `folders` (which queues have files), `consume_queue` (the units of one queue, and its ends),
`consume_queue_ext` (the extension to which a unit can lead), `lookup` (what units prove, and which parts of the log
must be read for other messages), `get_message` and `offset_by_time` (the broker's two look-ups), `consume_queue_store`
(all queues), `batches` (units in bulk, as rows of table `consume_queue`), `queue_recovery` (what a start of a broker
makes of a queue). Reads by topic: `unit_cursor` (units in the order of the log), `unit_tiles` and `unit_cover` (the
parts of the log for which the units of all queues account), `read_cost`, `unit_reader` (the records of units).

May import `spark_mq.store.log` and `spark_mq.store.config`, and not `spark_mq.store.index`.
"""

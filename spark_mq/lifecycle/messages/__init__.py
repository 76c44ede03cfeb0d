"""The messages from which the tables of `spark_mq.lifecycle` are derived: one read of the log.

Read `selected_messages` first, then `log_source`: what a table needs besides messages, of a store or of an archive.
`sound_messages`, `readable_log` and `lost_end` say what of the log is missing. The other modules are small operations
on Arrow columns.
"""

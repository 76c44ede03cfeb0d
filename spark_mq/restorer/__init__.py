"""Stores out of messages: a job that writes a commit log, and then everything that is derived from it.

Read in this order: `restore_request` (the arguments), `restore_source` (which rows, and what else is known of their
store), `encode_messages` (rows become records), `stage` (records in `chunk` files), `placement` (records get their
places in segments), `segment_task` (one task writes one segment), `store_job` (the steps that all runs have),
`new_store` and `finish` (a whole store, which appears in one step).

The way of an append (`appended_messages`): `append_target` says where a store ends, and whether it can be appended to.
`append` makes queue files and index files for the new records, and `append_commit` puts everything in place, all or
nothing.
"""

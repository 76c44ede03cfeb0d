"""Stores out of messages: a job that writes a commit log, and then everything that is derived from it.

Read in this order: `restore_request` (the arguments), `restore_source` (which rows, and what else is known of their
store), `encode_messages` (rows become records), `stage` (records in `chunk` files), `placement` (records get their
places in segments), `segment_task` (one task writes one segment), `store_job` (all stages, and what happens at the end).
"""
